"""Watches a training run by the log that its framework writes."""
