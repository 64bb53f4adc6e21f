"""Runs an exported configuration again and compares it with its stated figure."""
