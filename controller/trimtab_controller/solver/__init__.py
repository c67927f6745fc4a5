"""Computes plans with the models, in a separate process with a hard time limit."""
