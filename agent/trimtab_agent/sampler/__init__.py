"""What the host and the worker processes use: `readings` reads counters, `derive` makes samples of two readings."""
