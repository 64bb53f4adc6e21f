"""Forecasts for a model on GPUs without trials, over legal combinations. Runs nothing, imports no torch."""
