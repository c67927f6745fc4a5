"""Collocation: what remote tuples cost, measured, and what keeping them local is worth.  Pure."""
