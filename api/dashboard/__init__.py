"""The page: what it shows as values, and the templates that draw it."""
