"""What operators order: the commands, and what each of them does to the policy's state."""
