"""What a line or a code says: tables and pure functions."""
