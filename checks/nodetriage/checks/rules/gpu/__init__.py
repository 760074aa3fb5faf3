"""What the readings of GPUs are worth, where several checks share it or a check would be too long."""
