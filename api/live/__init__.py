"""Live events for the readers of streams."""
