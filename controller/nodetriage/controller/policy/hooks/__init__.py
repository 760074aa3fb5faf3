"""What the nodes' prologs and epilogs may refuse, and what they refused. Pure."""
