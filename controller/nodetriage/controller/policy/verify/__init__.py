"""What holds the policy to account: its invariants, and its own history replayed."""
