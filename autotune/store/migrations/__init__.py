"""How a database becomes the one the tables describe; run by ``autotune.store.schema``, without an ini file."""
