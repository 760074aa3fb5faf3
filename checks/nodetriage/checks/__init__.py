"""What can be wrong with a GPU node, and how to look for it. The list of checks is registry.py."""
