"""`python -m trimtab_controller.stream --config controller.toml`; also the primary file of spark-submit."""

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from trimtab_controller.jars.fetching import JarError
from trimtab_controller.stream.configuration import load
from trimtab_protocol.messages.decode import BadMessage

STOP_LIMIT_S = 8.0
"""How long after a signal the process ends at the latest, even in the middle of work: its whole state is in Kafka."""


def main() -> int:
    """Run the stream.  Exit code: 0 after SIGTERM or SIGINT, 1 if Spark fails for good, 2 for a bad configuration."""
    options = _options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        configuration = load(options.config)
    except (BadMessage, OSError) as error:
        print(f"{options.config}: {error}", file=sys.stderr)
        return 2
    # Imported after the configuration is known to be valid, because importing Spark takes seconds.
    from pyspark.errors import PySparkRuntimeError

    from trimtab_controller.stream.driver import run

    stopped = _stop_signals()
    parent = os.getppid()
    try:
        run(configuration, lambda: stopped.is_set() or (options.with_parent and os.getppid() != parent))
    except (JarError, PySparkRuntimeError) as error:  # for example, no Java
        logging.getLogger(__name__).error("Spark does not run: %s", error)
        return 1
    return 0


def _stop_signals() -> threading.Event:
    """Set by SIGTERM and SIGINT."""
    stopped = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        stopped.set()
        # No exception, since it would interrupt a call into the JVM.  But a slow or hanging JVM must not block the end.
        limit = threading.Timer(STOP_LIMIT_S, os._exit, (0,))
        limit.daemon = True
        limit.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopped


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trimtab_controller.stream", description="Reports in, snapshots out.")
    parser.add_argument("--config", type=Path, required=True, help="controller.toml")
    parser.add_argument("--with-parent", action="store_true", help="end when the process that started this one ends")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
