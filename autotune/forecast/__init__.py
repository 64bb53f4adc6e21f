"""What to expect of a model on GPUs nobody has tried: forecasts over legal combinations. Runs nothing, has no torch."""
