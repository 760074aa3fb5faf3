"""The database: events before their acks, intents before their acts."""
