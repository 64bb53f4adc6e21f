"""From what was typed to a ``StudySpec``."""
