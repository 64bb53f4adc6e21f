"""An exported configuration, run again and compared with its stated figure."""
