"""Recorded tables of trials, and the sweeps that record them."""
