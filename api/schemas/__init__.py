"""Shapes of the JSON, for the API's description; ``autotune.documents`` builds the JSON itself."""
