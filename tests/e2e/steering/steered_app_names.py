"""What the oracle's app and its judge share."""

WINDOW_S = 10.0
BUCKETS_PER_S = 200
"""Resolution of the times at which events were processed: 5 ms."""
