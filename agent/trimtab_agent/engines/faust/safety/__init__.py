"""Stops a worker before it can damage state (fence, store guard), and tells what has gone wrong all the same."""
