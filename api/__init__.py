"""The REST API and the live page over a study's database: FastAPI, read-only."""
