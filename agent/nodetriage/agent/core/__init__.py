"""What the agent decides: pure functions of values and of now."""
