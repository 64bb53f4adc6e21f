"""Code that the parent sides of several frameworks share; imports none of them."""
