"""Routes of the API and the pages, by topic."""
