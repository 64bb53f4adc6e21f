"""Tables of real trials on a CPU: what is swept, and with what."""
