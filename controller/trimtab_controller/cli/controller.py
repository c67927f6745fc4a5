"""`trimtab controller run`: runs the controller as a process."""

import argparse
import signal
import sys
import threading
from importlib.util import find_spec

from trimtab_controller.configuration import Configuration, load
from trimtab_controller.loop.stream_process import StreamProcess, stream_command
from trimtab_process.exit_codes import BAD_USAGE
from trimtab_process.logs import PlainFormatter, log_to_stderr
from trimtab_process.toml_files import BadConfiguration

STREAM_MODULES = ("pyarrow", "pyspark", "zstandard")


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 ended by a signal, 1 a fault, 2 bad configuration, 3 another dry run has taken over."""
    log_to_stderr(PlainFormatter())
    try:
        configuration = load(args.config)
    except BadConfiguration as error:
        print(f"trimtab controller: {error}", file=sys.stderr)
        return BAD_USAGE
    _check_stream_modules(configuration)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    settings = configuration.stream
    warm = args.act and settings.warm_standby
    stream = StreamProcess(stream_command(args.config, acting=args.act), warm=warm) if settings.embedded else None
    try:
        if stream is not None and (warm or not args.act):
            stream.tick()  # before what follows is imported, since Spark takes longest to start
        from trimtab_controller.cli.controlling import control

        return control(configuration, stream, stopped.is_set, acting=args.act)
    finally:
        if stream is not None:
            stream.close()


def _check_stream_modules(configuration: Configuration) -> None:
    """Raise ModuleNotFoundError now for packages that the stream's process would miss at each restart."""
    for name in STREAM_MODULES if configuration.stream.embedded else ():
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
