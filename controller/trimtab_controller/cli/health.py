"""`trimtab health`: asks the controller on this host whether it does its work.  Needs the standard library alone."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from trimtab_controller.cli.parsers import add_config, config_of
from trimtab_process.exit_codes import BAD_USAGE, DONE, FAILED
from trimtab_process.health import LIVE, READY, ask
from trimtab_process.toml_files import BadConfiguration, read_toml
from trimtab_protocol.messages.decode import Fields
from trimtab_protocol.settings.listen import Listen, read_listen


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `health`."""
    parser.epilog = (
        "For health checks of containers and services. It asks the port of [metrics] listen. "
        "Exit code 0: the controller does its work; 1: it does not, or does not answer; 2: wrong usage or file."
    )
    add_config(parser)
    parser.add_argument(
        "--live", action="store_true", help="only ask whether its loop runs; if not, it needs a restart"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the answer; the exit code is that of the command."""
    path = config_of(args)
    try:
        listen = read_toml(path, _listen)
    except BadConfiguration as error:
        print(f"trimtab health: {error}", file=sys.stderr)
        return BAD_USAGE
    if listen is None:
        print(f"trimtab health: {path}: found no [metrics], expected listen", file=sys.stderr)
        return BAD_USAGE
    verdict = ask(listen, LIVE if args.live else READY)
    print(verdict.text)
    return DONE if verdict.well else FAILED


def _listen(document: Mapping[str, Any]) -> Listen | None:
    """Where its metrics are served; the rest of the file is not looked at."""
    fields = Fields(document, "")
    return fields.optional("metrics", lambda name: read_listen(fields.fields(name)))
