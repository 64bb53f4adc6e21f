"""Is a stated gain true? The framework itself is the judge: it runs both exports in turns."""
