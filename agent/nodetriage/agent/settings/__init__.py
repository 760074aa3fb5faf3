"""The agent's settings: files to frozen values."""
