"""`python -m trimtab_controller.stream.training`: makes the class archive with which Spark starts faster.

It runs the queries of the stream on a few rows, so that the archive has the classes that the stream needs.
"""

import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

from trimtab_controller.jars import class_archive
from trimtab_controller.jars.fetching import JarError, Tell, cache_folder, locked
from trimtab_controller.jars.java import JavaMissingError
from trimtab_controller.stream import pipeline
from trimtab_controller.stream.session import ARCHIVED, open_session, prefer_plain_files, spark_archive

MAKE_LIMIT_S = 300.0
"""How long the JVM may take to write the archive: 2 s on an idle machine."""
QUERY_LIMIT_S = 300
"""How long Spark may take for its first query."""
WINDOW_MS = 10_000
RECORD = (
    "CAST('host' AS BINARY) AS key",
    "CAST(value AS BINARY) AS value",
    "current_timestamp() AS timestamp",
    "0 AS partition",
    "0L AS offset",
)


def make_archive(tell: Tell) -> Path:
    """Make the archive unless it is there; one process makes it, others wait.  `tell` is called with lines of progress.

    Raises JarError, JavaMissingError, PySparkRuntimeError if Spark does not run.
    """
    archive = spark_archive()
    with locked(cache_folder() / f"{ARCHIVED}-archive.lock"):
        if not archive.is_file():
            tell(f"preparing Spark's classes for faster starts, 155 MB, about half a minute: {archive}")
            with TemporaryDirectory(prefix=f"{ARCHIVED}-archive-", dir=archive.parent) as folder:
                made = Path(folder, archive.name)
                _run_spark(made, Path(folder))
                if not made.is_file():
                    raise JarError("Java made no class archive: it may lack the archive of its own classes")
                made.replace(archive)
            class_archive.delete_old(ARCHIVED, archive.parent)
    return archive


def _run_spark(archive: Path, folder: Path) -> None:
    keys = {"spark.master": "local[1]", "spark.jars": ""}
    spark = open_session("trimtab-training", keys, small=True, options=class_archive.make(archive))
    jvm: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc
    try:
        _run_queries(spark, folder)
    finally:
        spark.stop()
        assert jvm.stdin is not None
        jvm.stdin.close()  # the JVM ends with its standard input, and writes the archive before it does
        try:
            jvm.wait(MAKE_LIMIT_S)
        except subprocess.TimeoutExpired:
            jvm.kill()
            raise JarError(f"Java did not write the class archive within {MAKE_LIMIT_S:.0f} s") from None


def _run_queries(spark: SparkSession, folder: Path) -> None:
    """The queries of the stream, on a record that is no report."""
    prefer_plain_files(spark, str(folder))
    Path(folder, "records").mkdir()
    Path(folder, "records", "one").write_text("{}\n", encoding="utf-8")
    records = spark.readStream.format("text").load(str(folder / "records")).selectExpr(*RECORD)
    writer = records.writeStream.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(_run_batch)
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(QUERY_LIMIT_S):
        raise JarError(f"Spark did not end its first query within {QUERY_LIMIT_S} s")


def _run_batch(records: DataFrame, _batch_id: int) -> None:
    pipeline.small(records, most=1, most_bytes=1).toArrow()
    pipeline.left_out(records, window_ms=WINDOW_MS, hosts=None).collect()
    kept = pipeline.kept(records, hosts=None, flooding=())
    pipeline.windows(pipeline.samples(kept, cluster="c", max_ahead_ms=WINDOW_MS), window_ms=WINDOW_MS).toArrow()


def main() -> int:
    """Make the archive; return the exit code."""
    try:
        make_archive(partial(print, flush=True))
    except (JarError, JavaMissingError, PySparkRuntimeError) as error:
        print(f"Spark's starts stay slower: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
