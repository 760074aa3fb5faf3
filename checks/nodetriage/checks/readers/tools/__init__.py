"""Answers of programs that ask devices, as values."""
