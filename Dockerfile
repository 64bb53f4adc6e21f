# autotune with its training stack: `docker build -t autotune .`, then docs/containers.md.
# CPU only: docker build --build-arg BASE=python:3.11-slim-bookworm --build-arg CPU=1 -t autotune .
ARG BASE=nvidia/cuda:13.0.2-devel-ubuntu24.04
FROM ${BASE}

ARG CPU=
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates g++ git make \
    && (command -v python3 >/dev/null && python3 -c 'import ensurepip' 2>/dev/null \
        || apt-get install --yes --no-install-recommends python3 python3-dev python3-venv) \
    && rm -rf /var/lib/apt/lists/*

# Studies, models and caches lie in /data, for whichever user the container runs as.
ENV HOME=/data/home AUTOTUNE_HOME=/data/autotune USER=autotune LOGNAME=autotune
RUN mkdir -p /data/home /data/autotune && chmod -R 0777 /data

WORKDIR /opt/autotune
COPY . .
RUN make setup CPU=${CPU} && rm -rf /data/home/.cache && chmod -R a+rX /opt/autotune && chmod -R 0777 /data

ENV PATH=/opt/autotune/.venv/bin:${PATH} PYTHONDONTWRITEBYTECODE=1
VOLUME /data
# The tuner is a subreaper and ends what it started, so no init is needed as process 1.
ENTRYPOINT ["autotune"]
CMD ["doctor", "--python", "/opt/autotune/.venv-train/bin/python"]
