"""Caches of the database for many readers."""
