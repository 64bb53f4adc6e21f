"""The pages: their values, and the templates that render them."""
