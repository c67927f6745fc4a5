"""What the stream makes of reports, one in base64 per line of standard input: its rows, one in JSON per line."""

import base64
import json
import sys

import pyarrow as pa
from pyspark.sql import functions as F

import trimtab_controller
from trimtab_controller.stream import pipeline
from trimtab_controller.stream.session import open_session


def main() -> None:
    """The first line tells which code this is."""
    print(trimtab_controller.__file__)
    reports = [base64.b64decode(line) for line in sys.stdin]
    table = pa.table(
        {
            "key": pa.array([json.loads(report)["h"].encode() for report in reports], pa.binary()),
            "value": pa.array(reports, pa.binary()),
            "arrival_ms": pa.array(range(1_000_000, 1_000_000 + len(reports)), pa.int64()),
        }
    )
    spark = open_session("previous", {"spark.master": "local[1]", "spark.jars": ""})
    try:
        raw = spark.createDataFrame(table).withColumn("timestamp", F.expr("timestamp_millis(arrival_ms)"))
        for row in pipeline.samples(raw, cluster="c", max_ahead_ms=60_000).toArrow().to_pylist():
            print(json.dumps(row))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
