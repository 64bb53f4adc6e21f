"""Knobs, search spaces made of knobs, and the legality rules of a configuration."""
