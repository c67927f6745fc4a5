"""The resources under /api/v1."""
