"""``autotune doctor`` and its checks."""
