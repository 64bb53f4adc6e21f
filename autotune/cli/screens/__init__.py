"""What commands print for people."""
