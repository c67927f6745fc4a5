"""Opens the Spark session: a new one, or the one that spark-submit has started."""

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

import pyspark
from pyspark.sql import SparkSession

from trimtab_controller.jars import class_archive
from trimtab_controller.jars.fetching import spark_jars

LOGGING = Path(__file__).with_name("log4j2.properties")
"""The configuration of Spark's log, unless spark-submit or `spark.driver.extraJavaOptions` sets another one."""

SPARK = Path(pyspark.__file__).parent
"""The Spark that comes with PySpark, which works with no other version."""
ARCHIVED = "spark"
"""The name of Spark's class archives."""
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
"""Environment variable with the arguments of PySpark's `spark-submit`; they end with `pyspark-shell`."""

# These take effect only before the JVM starts.
_START_KEYS: Mapping[str, str] = {
    # Plans of many columns are deep; the default stack is too small for them.  The heap would begin with a 64th of the
    # machine's memory, and a small fleet never needs that.
    "spark.driver.extraJavaOptions": "-Xss16m -XX:+UseSerialGC -Xms64m",
    "spark.driver.memory": "768m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_SQL_KEYS: Mapping[str, str] = {
    # A number that does not fit becomes NULL, which validation refuses, instead of an exception that ends the stream.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Hide the password and the private key of Kafka's client in query plans.
    "spark.sql.redaction.options.regex": "(?i)url|jaas|keystore",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # The assembler closes the windows, so batches without rows are not needed.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
}


def open_session(
    name: str, keys: Mapping[str, str], *, small: bool = False, options: Iterable[str] | None = None
) -> SparkSession:
    """Open the session.  The given `spark.*` keys override those of spark-submit, which override the stream's own.

    `small`: the fleet has few hosts.  `options`: further options of the JVM; by default those that use the class
    archive.  One session per process, because the keys belong to the JVM that this starts.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name)
    on_interrupt = signal.getsignal(signal.SIGINT)
    if is_submitted():
        spark = builder.config(map=dict(keys)).getOrCreate()
    else:
        os.environ["SPARK_HOME"] = str(SPARK)  # and not another one that this machine has
        options = class_archive.use(spark_archive()) if options is None else options
        with _told_by_file({**keys_at_start(keys, options, small=small), **keys}):
            spark = builder.getOrCreate()
    # Spark installs a handler of its own, whose exception interrupts calls into the JVM.
    signal.signal(signal.SIGINT, on_interrupt)
    spark.sparkContext.setLogLevel("WARN")
    given = dict(spark.sparkContext.getConf().getAll())
    for key, value in _SQL_KEYS.items():
        if key not in given:
            spark.conf.set(key, value)
    return spark


def prefer_plain_files(spark: SparkSession, folder: str) -> None:
    """Write checkpoints in a local folder without Hadoop's FileContext, which starts several processes per file."""
    if "://" not in folder:
        package = "org.apache.spark.sql.execution.streaming.checkpointing"
        name = f"{package}.FileSystemBasedCheckpointFileManager"
        spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", name)


def is_submitted() -> bool:
    """Whether spark-submit has started the JVM; then spark-submit must name the connector's jars (`--jars`)."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def _told_by_file(keys: Mapping[str, str]) -> Iterator[None]:
    """Pass the keys to a JVM started in this context by a file that only its owner can read.

    They override `spark-defaults.conf`.  PySpark would put the keys of a session's builder on the command line, which
    every user of the machine can read.
    """
    before = os.environ.get(SUBMIT_ARGUMENTS)
    with NamedTemporaryFile("w", encoding="utf-8", prefix="trimtab-spark-", suffix=".conf") as file:  # of mode 0600
        file.writelines(f"{key}={_escaped(value)}\n" for key, value in keys.items())
        file.flush()
        told = f"--properties-file {file.name} --load-spark-defaults"
        os.environ[SUBMIT_ARGUMENTS] = f"{told} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            del os.environ[SUBMIT_ARGUMENTS]
            if before is not None:
                os.environ[SUBMIT_ARGUMENTS] = before


def _escaped(value: str) -> str:
    """The text as `java.util.Properties` reads it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def keys_at_start(keys: Mapping[str, str], options: Iterable[str], *, small: bool) -> dict[str, str]:
    """The `spark.*` keys that the JVM starts with, beside those that the user gives (`keys`)."""
    start = dict(_START_KEYS)
    for option in (f"-Dlog4j2.configurationFile={LOGGING}", *options):
        start["spark.driver.extraJavaOptions"] += f' "{option}"'
    if not {"spark.jars", "spark.jars.packages"} & keys.keys():
        start["spark.jars"] = ",".join(str(jar) for jar in spark_jars())
    if keys.get("spark.master", "").startswith("local"):
        if small:
            # For the reports of a few hosts the optimising compiler costs more than it saves.
            start["spark.driver.extraJavaOptions"] += " -XX:TieredStopAtLevel=1"
        # The JVM connects only to itself, and the machine's name may not resolve.
        start |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Every user of the machine reaches these ports.  Spark itself makes the secret, in its memory.
        start["spark.authenticate"] = "true"
    return start


def spark_archive() -> Path:
    """The path of Spark's class archive."""
    return class_archive.archive_of(ARCHIVED, (SPARK / "jars").glob("*.jar"))


def fresh_checkpoint(spark: SparkSession, folder: str, name: str) -> str:
    """A new path for a checkpoint; older ones in the folder are deleted, on any file system.

    Checkpoints are disposable, because a query reads again from Kafka what it needs.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    root = jvm.org.apache.hadoop.fs.Path(folder)
    system = root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    system.mkdirs(root)
    for status in system.listStatus(root):
        if status.getPath().getName().startswith(CHECKPOINT_PREFIX):
            system.delete(status.getPath(), True)
    return f"{folder.rstrip('/')}/{CHECKPOINT_PREFIX}{name}"


CHECKPOINT_PREFIX = "trimtab-stream-"
