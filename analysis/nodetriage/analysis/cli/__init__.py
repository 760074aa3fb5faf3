"""The verbs report, model and simulate of nodetriagectl."""
