"""The command nodetriagectl: one module for each verb."""
