"""The stream turns agents' reports into one snapshot per window, on Spark Structured Streaming.

Spark parses, validates and sums (`validation`, `pipeline`).  Plain Python decides which window is ready and builds its
snapshot (`assemble`, `contents`).  The controller itself imports only `configuration`, which does not need Spark.
"""
