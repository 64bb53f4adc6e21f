"""Turns the user's input into a ``StudySpec``."""
