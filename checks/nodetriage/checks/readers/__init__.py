"""How a check reads the machine: one module for each source, with its files and their units."""
