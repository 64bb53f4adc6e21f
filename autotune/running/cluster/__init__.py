"""Trials on the machines of a cluster: an agent in each place, and the runner that follows it from afar."""
