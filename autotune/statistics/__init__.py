"""Noise of measured speeds: its distributions, its components, and the uncertainty of a gain."""
