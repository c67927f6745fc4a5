"""The tests, importable from the repository root: `python -m tests.faults.matrix`."""
