"""The shapes of the JSON, for the API's description; ``serialise`` and ``recommendation_json`` build what is sent."""
