"""Steers a Faust app: `install(app)` is the one line in the user's code."""
