"""Set-up scripts run by make, before anything is installed: standard library only."""
