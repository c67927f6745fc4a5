"""Standbys: which workers follow which key groups, when, and at what cost.  Pure."""
