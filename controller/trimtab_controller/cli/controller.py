"""`trimtab controller run`: the controller as a process."""

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from confluent_kafka import KafkaException

from trimtab_controller.configuration import BadConfiguration, load
from trimtab_controller.driver import Controller
from trimtab_controller.kafka.connection import MissingTopicsError
from trimtab_controller.kafka.publisher import FencedError, PublicationError
from trimtab_controller.recovery import JournalError
from trimtab_models.signing.keys import BadKey

ENDED, FAILED, BAD_CONFIGURATION, FENCED = 0, 1, 2, 3


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers `controller run`."""
    parser = commands.add_parser("controller", help="run the controller")
    actions = parser.add_subparsers(metavar="run", required=True)
    runs = actions.add_parser("run", help="decide, and with --act carry out")
    runs.add_argument("--config", type=Path, required=True, metavar="FILE", help="controller.toml")
    runs.add_argument("--act", action="store_true", help="carry plans out; without it only say what would be done")
    runs.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 ended by a signal, 1 a fault, 2 bad configuration, 3 another controller has taken over."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        configuration = load(args.config)
    except BadConfiguration as error:
        print(f"trimtab controller: {error}", file=sys.stderr)
        return BAD_CONFIGURATION
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        controller = Controller(configuration, args.config, acting=args.act, stopping=stopped.is_set)
    except BadKey as error:
        print(f"trimtab controller: signing: {error}", file=sys.stderr)
        return BAD_CONFIGURATION
    try:
        controller.run()
    except FencedError as error:
        print(f"trimtab controller: {error}; this one ends", file=sys.stderr)
        return FENCED
    except (PublicationError, MissingTopicsError, JournalError, OSError) as error:
        print(f"trimtab controller: {error}", file=sys.stderr)
        return FAILED
    except KafkaException as error:
        print(f"trimtab controller: Kafka: {error.args[0].str()}", file=sys.stderr)
        return FAILED
    return ENDED
