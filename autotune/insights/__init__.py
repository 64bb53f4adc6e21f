"""What a study's trials say, as pure functions for the CLI, the API and the report."""
