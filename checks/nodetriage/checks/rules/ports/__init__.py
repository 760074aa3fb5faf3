"""The roles and the past of ports."""
