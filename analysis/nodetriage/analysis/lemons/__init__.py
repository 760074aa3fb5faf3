"""Nodes that fail jobs again and again."""
