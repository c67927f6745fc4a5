"""Restores of state: what they cost, their order, how many at a time, and those of hand-overs and of new standbys."""
