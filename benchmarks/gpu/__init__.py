"""What a machine with a GPU is used for, a quarter of an hour at a time: ``python -m benchmarks.gpu.visit --help``."""
