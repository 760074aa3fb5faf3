"""The faults that a GPU node can have, and the checks that find them. The list of checks is registry.py."""
