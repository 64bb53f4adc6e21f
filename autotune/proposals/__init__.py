"""Proposes the next configuration; the only package that imports optuna."""
