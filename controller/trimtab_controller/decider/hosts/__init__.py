"""Hosts: what they have, what fills them, how fast they are.  Pure."""
