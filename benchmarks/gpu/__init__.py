"""Real trials all over a space, on whatever CUDA GPU is at hand: ``python -m benchmarks.gpu --help``."""
