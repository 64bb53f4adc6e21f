"""Recommends, compares and exports configurations."""
