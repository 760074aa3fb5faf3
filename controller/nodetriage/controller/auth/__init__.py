"""Who is at the other end: certificates and munge credentials."""
