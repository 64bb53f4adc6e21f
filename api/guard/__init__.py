"""Who may ask: Host, Origin, token, address, one-time codes."""
