"""What agents, watchers and operators call: gRPC services, and who is let in."""
