"""What to do and why: observe, evaluate, decide.  Pure, but for `driver`."""
