"""Screens that commands print for people."""
