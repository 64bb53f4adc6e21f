"""What the parent sides of several frameworks share. It imports none of them."""
