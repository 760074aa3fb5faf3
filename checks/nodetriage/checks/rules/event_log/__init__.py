"""What entries of a BMC's logs are worth."""
