"""The command nodetriage: one module for each verb."""
