"""Figures by Matplotlib."""
