"""A running study: its loop, the next step, budget, confirmation and control."""
