"""Runs trials on the machines of a cluster: an agent on each machine, and a runner that follows it from the tuner."""
