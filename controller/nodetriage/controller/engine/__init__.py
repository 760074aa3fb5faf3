"""The loop around the policy: stored events in, recorded actions out."""
