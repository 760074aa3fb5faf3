"""What the controller decides: pure functions of state, input and now. Nothing here reads, writes or waits."""
