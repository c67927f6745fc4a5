"""`python -m trimtab_controller.stream --config controller.toml`; also the primary file of spark-submit."""

import argparse
import logging
import os
import signal
import sys
import threading
from importlib.abc import MetaPathFinder
from pathlib import Path

from trimtab_controller.jars.fetching import JarError
from trimtab_controller.jars.java import JavaMissingError
from trimtab_controller.stream.configuration import LEAD, STAND_BY, load
from trimtab_controller.stream.outlet import Turns
from trimtab_process.exit_codes import BAD_USAGE, DONE, FAILED
from trimtab_process.logs import PlainFormatter, log_to_stderr
from trimtab_process.toml_files import BadConfiguration

SILENT_WINDOWS = 2
"""After so many windows and the watermark's delay without a snapshot, the publishing stream counts as gone."""
STOP_LIMIT_S = 8.0
"""How long after a signal the process ends at the latest, even in the middle of work: its whole state is in Kafka."""


def main() -> int:
    """Run the stream.  Exit code: 0 after SIGTERM or SIGINT, 1 if Spark fails for good, 2 for a bad configuration."""
    options = _options()
    log_to_stderr(PlainFormatter())
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        configuration = load(options.config)
    except BadConfiguration as error:
        print(error, file=sys.stderr)
        return BAD_USAGE
    sys.meta_path.insert(0, _WithoutPandas())
    # Imported after the configuration is known to be valid, because importing Spark takes seconds.
    from pyspark.errors import PySparkRuntimeError

    from trimtab_controller.stream.driver import run

    stopped = _stop_signals()
    parent = os.getppid()
    settings = configuration.stream
    turns = Turns(told=options.told, silent_ms=SILENT_WINDOWS * settings.window_ms + settings.watermark_ms)
    if options.told:
        threading.Thread(target=_listen, args=(turns,), daemon=True).start()
    try:
        run(configuration, turns, lambda: stopped.is_set() or (options.with_parent and os.getppid() != parent))
    except (JarError, JavaMissingError, PySparkRuntimeError) as error:
        logging.getLogger(__name__).error("Spark does not run: %s", error)
        return FAILED
    return DONE


class _WithoutPandas(MetaPathFinder):
    """Hides pandas, which nobody uses here.  pyarrow imports it where it finds it, for 0.6 s of CPU and 45 MB."""

    def find_spec(self, name: str, _path: object, _target: object = None) -> None:
        """Raise ModuleNotFoundError for pandas, and leave all others to the next finder."""
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _listen(turns: Turns) -> None:
    """Follow what the controller tells on standard input, until its end."""
    said = b""
    while chunk := os.read(sys.stdin.fileno(), 1024):  # no buffered read: it would hold a lock at the interpreter's end
        *lines, said = (said + chunk).split(b"\n")
        for line in lines:
            if line == LEAD:
                turns.lead()
            elif line == STAND_BY:
                turns.stand_by()


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
    parser.add_argument("--told", action="store_true", help="publish only between the lines lead and stand-by on stdin")
    parser.add_argument("--with-parent", action="store_true", help="end when the process that started this one ends")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
