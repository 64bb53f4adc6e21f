"""Proposes the next configuration; the only room that imports optuna."""
