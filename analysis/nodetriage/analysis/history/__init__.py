"""What happened: jobs and events joined, counted, and priced."""
