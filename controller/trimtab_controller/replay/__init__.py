"""Replay: the decider over recorded windows, under other settings.  Pure: `cli/replay.py` reads and prints."""
