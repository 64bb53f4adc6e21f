"""What figures were measured on."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.schemas.base import Shape, Time


class Fingerprint(Shape):
    """Hardware, driver, versions and workload."""

    digest: str = Field(description="Another one with anything of the rest.")
    first_seen_at: Time | None
    hardware: dict[str, Any] = Field(
        description="As far as known: `cpu`, `cores`, `memory_bytes`, `machine`, `driver`, and of each of "
        "`gpus` its `name`, `memory_bytes` and more."
    )
    software: dict[str, str] = Field(description="Package to version.")
    workload: str = Field(description="Digest of the workload.")


class Fingerprints(Shape):
    """The oldest first."""

    study: str
    fingerprints: list[Fingerprint]
