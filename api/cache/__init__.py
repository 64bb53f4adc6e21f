"""What the API has read of the database, kept for many readers."""
