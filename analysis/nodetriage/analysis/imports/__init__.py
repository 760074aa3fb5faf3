"""From what a site has (sacct, CSV, the controller's store, a file of its topology) to the two tables."""
