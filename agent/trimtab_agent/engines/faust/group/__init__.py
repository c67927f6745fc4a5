"""The consumer group: the app's layout, assignment by placement, and the key groups that this worker owns."""
