# What `make start` needs of a system and no more. The checkout is mounted, so that what it sets up stays (docs/containers.md).
FROM python:3.11-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make tini \
    && rm -rf /var/lib/apt/lists/*
# With the NVIDIA container toolkit these let the GPUs in; without one they say nothing.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /work
ENTRYPOINT ["tini", "--"]
CMD ["make", "start"]
