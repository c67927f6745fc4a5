"""Stops a worker before it can damage state: fence and store guard."""
