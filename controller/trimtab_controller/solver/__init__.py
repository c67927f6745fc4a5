"""Plans from the models, computed in a process of their own with a hard limit."""
