"""Forecasts for a model on GPUs without trials, over legal combinations. Runs nothing and does not import torch."""
