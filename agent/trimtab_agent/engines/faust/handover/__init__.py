"""Moves key groups between two workers within one generation of the group."""
