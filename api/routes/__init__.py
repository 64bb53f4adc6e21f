"""The addresses, by topic."""
