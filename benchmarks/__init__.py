"""Measurements of the tool and of GPUs; none of it is installed with the tool."""
