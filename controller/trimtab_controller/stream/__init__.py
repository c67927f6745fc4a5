"""The stream: agents' reports in, one snapshot per window out, on Spark Structured Streaming.

Spark parses, validates and sums (`validation`, `pipeline`); plain Python decides which window is ready and what is in
its snapshot (`assemble`, `contents`).  The decider uses `chunks` and `configuration`, which do not need Spark.
"""
