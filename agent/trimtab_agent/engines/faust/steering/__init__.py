"""Carries out the agent's commands in the worker."""
