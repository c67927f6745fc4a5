"""Carrying out a plan: hand-overs, one published step after the other, each in the journal before it is done."""
