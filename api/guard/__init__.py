"""Access control: Host, Origin, token, address, one-time codes."""
