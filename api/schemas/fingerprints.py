"""What figures were measured on."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.schemas.base import Shape, Time


class Fingerprint(Shape):
    """Hardware, driver, versions and workload."""

    digest: str = Field(description="SHA-256 of the rest.")
    first_seen_at: Time | None
    hardware: dict[str, Any]
    software: dict[str, str] = Field(description="Package to version.")
    workload: str = Field(description="Digest of the workload.")


class Fingerprints(Shape):
    """The oldest first."""

    study: str
    fingerprints: list[Fingerprint]
