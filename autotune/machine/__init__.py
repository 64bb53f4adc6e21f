"""What this machine has: cores, memory, GPUs, and what else runs on it."""
