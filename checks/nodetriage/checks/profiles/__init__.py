"""What known machines should have: one TOML file for each product."""
