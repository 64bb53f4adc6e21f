"""Migrations of a database to the tables of this version; run by ``autotune.store.schema``, without an ini file."""
