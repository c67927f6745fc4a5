"""The consumer group: layout of the app, assignment by the placement, which key groups this worker owns."""
