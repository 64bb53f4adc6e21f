"""The shapes of the JSON, for the API's description. What is sent is built by ``autotune.serialise``."""
