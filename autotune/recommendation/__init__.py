"""Which configuration is recommended, compared and exported."""
