"""What puts the lines of one report together, and what the report then says of which part."""
