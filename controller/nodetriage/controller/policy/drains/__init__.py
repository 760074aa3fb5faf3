"""How new drains are counted, how repairs are counted apart from them, and what operators learn of what is held."""
