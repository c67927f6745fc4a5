"""`python -m trimtab_controller.stream --config controller.toml`; also the primary file of spark-submit."""

import argparse
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from trimtab_controller.stream.configuration import load
from trimtab_models.messages.decode import BadMessage


def main() -> int:
    """Exit code: 0 after SIGTERM or SIGINT, 1 for what Spark cannot go on from, 2 for a bad configuration."""
    options = _options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        configuration = load(options.config)
    except (BadMessage, OSError) as error:
        print(f"{options.config}: {error}", file=sys.stderr)
        return 2
    # Spark takes seconds to import: only with a configuration that can be used.
    from trimtab_controller.stream.driver import run

    signal.signal(signal.SIGTERM, _end)
    parent = os.getppid()
    with contextlib.suppress(KeyboardInterrupt):
        run(configuration, lambda: options.with_parent and os.getppid() != parent)
    return 0


def _end(_number: int, _frame: object) -> NoReturn:
    # An exception also ends waits inside Spark, such as that for a JVM to start.
    sys.exit(0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trimtab_controller.stream", description="Reports in, snapshots out.")
    parser.add_argument("--config", type=Path, required=True, help="controller.toml")
    parser.add_argument("--with-parent", action="store_true", help="end when the process that started this one ends")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
