"""What is expected to happen: pure functions of parameters."""
