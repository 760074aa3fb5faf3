"""The machine and its devices: each source behind one module, the only one that knows it."""
