"""Findings from a study's trials, as pure functions for the CLI, the API and the report."""
