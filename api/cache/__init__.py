"""Caches of the database, shared by all readers of the server."""
