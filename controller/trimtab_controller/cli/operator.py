"""What the operator's commands share: the cluster that they are about, what is read of it, and what they print."""

import argparse
import getpass
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from rich import box
from rich.console import Console
from rich.table import Table

from trimtab_controller.cli.parsers import CONFIG_VARIABLE, named_config
from trimtab_controller.configuration import Configuration, decode, load
from trimtab_controller.intents.change import ChangeRefused, RefusalKind
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.events import read_events
from trimtab_controller.kafka.intents import NotWrittenError
from trimtab_controller.kafka.reader import ReadError, drain, reading, starts
from trimtab_controller.seen import most_telling
from trimtab_process.exit_codes import BAD_USAGE, FAILED
from trimtab_process.kafka_errors import is_transient
from trimtab_process.toml_files import BadConfiguration, parse_toml
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.decode import BadMessage, check_text
from trimtab_protocol.messages.events import Event
from trimtab_protocol.messages.intents import Intent, decode_intent
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.rules import MAX_REASON
from trimtab_protocol.messages.status import Status
from trimtab_protocol.signing.keys import BadKey

Intents = dict[str, Intent | None]
KEPT_S = 30 * 86_400.0
"""How far back events are kept."""
WRITE_LIMIT_S = 15.0
"""How long an operator's command waits until the broker has stored what it writes."""


class CommandError(Exception):
    """The command cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster that a command is about."""

    configuration: Configuration
    connection: Connection
    topics: Topics


def run_with_cluster(args: argparse.Namespace, function: Callable[[argparse.Namespace, Target], int]) -> int:
    """Call the function of a command with the cluster that its options name.

    Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error.
    """
    try:
        target = read_target(args)
        if getattr(args, "reason", None) is not None:
            args.reason = check_text(args.reason, "reason", MAX_REASON)  # before anybody waits for a broker
    except (BadConfiguration, BadMessage) as error:
        return refuse(str(error), BAD_USAGE)
    try:
        return function(args, target)
    except ChangeRefused as error:
        return refuse(str(error), BAD_USAGE if error.fault is RefusalKind.INVALID else FAILED)
    except (CommandError, ReadError, BadKey, NotWrittenError) as error:
        return refuse(str(error), FAILED)
    except (BadConfiguration, BadMessage) as error:
        return refuse(str(error), BAD_USAGE)
    except KafkaException as error:
        where, fault = target.configuration.kafka.bootstrap_servers, error.args[0]
        remedy = (
            " (is it up and reachable, and are tls and sasl right? `trimtab doctor` says)"
            if is_transient(fault)
            else ""
        )
        return refuse(f"Kafka at {where}: {fault.str()}{remedy}", FAILED)


def read_target(args: argparse.Namespace) -> Target:
    """The cluster that the options name.  Raises BadConfiguration, BadMessage."""
    path = _path_of(args)
    return target_of(decode(read_document(args)) if path is None else load(path))


def read_document(args: argparse.Namespace) -> dict[str, Any]:
    """The configuration of the cluster that the options name, not yet checked.  Raises BadConfiguration."""
    if (path := _path_of(args)) is not None:
        return parse_toml(path)
    if args.bootstrap and args.cluster:
        return {
            "controller": {"cluster": args.cluster},
            "kafka": {"bootstrap_servers": args.bootstrap},
            "stream": {"checkpoint_dir": "none"},  # no stream is run here
        }
    raise BadConfiguration(
        f"name the cluster: --config FILE, or {CONFIG_VARIABLE} in the environment, "
        "or --bootstrap HOST:PORT and --cluster NAME"
    )


def _path_of(args: argparse.Namespace) -> Path | None:
    return args.config if args.bootstrap else named_config(args)


def target_of(configuration: Configuration) -> Target:
    """The cluster of a configuration."""
    connection = Connection(kafka=configuration.kafka)
    return Target(configuration=configuration, connection=connection, topics=Topics(configuration.cluster))


def console() -> Console:
    """A console for plain text."""
    return Console(highlight=False, markup=False)


def new_table(names: Iterable[str], *, right: Container[str] = (), narrow: bool = False) -> Table:
    """A table with these columns, some of them flush `right`; `narrow`: with one space between them."""
    space: dict[str, Any] = {"padding": (0, 1, 0, 0)} if narrow else {"pad_edge": False}
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, **space)
    for name in names:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made


def read_status(target: Target) -> Status | None:
    """The status of the acting controller or, if that is silent, the newest one.  Raises CommandError."""
    with reading(target.connection, "status") as consumer:
        found = drain(consumer, starts(consumer, [target.topics.status]))
    try:
        told = [decoded(message.value(), Status) for message in found.latest(target.topics.status)]
    except BadMessage as error:
        raise CommandError(f"the status cannot be read: {error}") from error
    return most_telling(told, time.time())


def read_intents(target: Target) -> Intents:
    """The intents in force, by key; None for one that cannot be read (it can still be cancelled)."""
    with reading(target.connection, "intents") as consumer:
        found = drain(consumer, starts(consumer, [target.topics.intents]))
    intents: Intents = {}
    for message in found.latest(target.topics.intents):
        try:
            intents[message.key().decode(errors="replace")] = decode_intent(message.key(), message.value())
        except BadMessage:
            intents[message.key().decode(errors="replace")] = None
    return intents


def events_of(target: Target, now: float) -> tuple[Event, ...]:
    """All events; none where there is no such topic, or it may not be read."""
    try:
        return read_events(target.connection, target.topics, now - KEPT_S).events
    except ReadError:
        return ()


def who() -> str:
    """The user and host that an intent names."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:200]


def says_yes(question: str) -> bool:
    """Whether the operator says so; whoever cannot be asked does not."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def print_json(document: dict[str, Any]) -> None:
    """Print one line of JSON."""
    print(json.dumps(document, allow_nan=False))


def refuse(reason: str, code: int) -> int:
    """Say why a command is not carried out, and return its exit code."""
    print(f"trimtab: {reason}", file=sys.stderr)
    return code
