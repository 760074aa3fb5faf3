"""The database: stores events before their acks, and actions before they are done."""
