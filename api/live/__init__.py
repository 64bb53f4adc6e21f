"""Events to those who listen."""
