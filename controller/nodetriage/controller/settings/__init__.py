"""What an operator writes in policy.toml, as frozen values, and its explanation: no decision is made here."""
