"""Sizing: how many instances of each operator on which machines, so that the sources can emit most."""
