"""The stream: agents' reports in, one snapshot per window out, on Spark Structured Streaming.

Spark parses, validates and sums (`validation`, `pipeline`); plain Python decides which window is ready and what is in
its snapshot (`assemble`, `contents`).  The controller itself reads `configuration`, which does not need Spark.
"""
