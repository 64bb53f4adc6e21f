"""The REST API under load: ``python -m benchmarks.api --help``."""
