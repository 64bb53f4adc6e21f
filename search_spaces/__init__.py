"""Knobs, search spaces made of them, and the rules that make a combination legal."""
