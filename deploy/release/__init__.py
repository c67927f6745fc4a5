"""Builds a release: `make release`."""
