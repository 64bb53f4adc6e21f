"""Hardware and load of this machine: cores, memory, GPUs and other processes."""
