"""What every test runs under."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A slow or busy machine must not fail a property; what is tested is what holds, not how fast.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")
