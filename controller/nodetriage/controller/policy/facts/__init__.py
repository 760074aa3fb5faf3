"""What the policy's state is made of."""
