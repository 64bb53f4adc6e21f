"""Searches replayed on recorded tables of real trials: ``python -m benchmarks.search --help``. See docs/tables.md."""
