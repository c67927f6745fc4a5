"""Resource use of host and worker processes: `readings` reads counters, `derive` computes samples from two readings."""
