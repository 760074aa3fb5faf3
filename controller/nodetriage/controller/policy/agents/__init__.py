"""What agents report as a whole: their open findings, and whether they report at all."""
