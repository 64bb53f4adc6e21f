"""Noise of measured speeds: its distributions, its parts, and what they leave open about a gain."""
