"""Text, numbers and sentences for people."""
