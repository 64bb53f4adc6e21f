"""Forecasts for a model on GPUs nobody has tried, over legal combinations. Runs nothing, imports no torch."""
