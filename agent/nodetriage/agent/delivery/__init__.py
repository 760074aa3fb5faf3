"""Brings events to a controller."""
