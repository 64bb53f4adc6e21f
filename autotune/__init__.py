"""The tuner. Never imports torch."""
