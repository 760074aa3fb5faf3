"""The processes that run checks, so that a device that hangs takes none of the agent with it."""
