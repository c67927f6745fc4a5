"""The operator's commands: show what the controller sees and does, and tell it what to do."""

import argparse
import getpass
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console

from trimtab_controller.cli.known import CommandError, Target
from trimtab_controller.cli.parsers.config_option import CONFIG_VARIABLE, named_config
from trimtab_controller.cli.status_intents import intents_documents
from trimtab_controller.cli.status_view import show_status
from trimtab_controller.configuration import BadConfiguration, Configuration, decode, load, parse
from trimtab_controller.intents import actions
from trimtab_controller.intents.change import Asked, Change, Fault, Refusal
from trimtab_controller.intents.names import app_named, node_named, worker_named
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.intents import NotWrittenError, write_intents
from trimtab_controller.kafka.reader import ReadError, drain, reading, starts
from trimtab_controller.leadership.group import Member, members
from trimtab_controller.seen import Seen, most_telling, summary
from trimtab_process.kafka_errors import is_transient
from trimtab_protocol.messages.decode import BadMessage, check_text
from trimtab_protocol.messages.intents import Intent, decode_intent
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.messages.rules import MAX_REASON
from trimtab_protocol.messages.status import Status, decode_status, encode_status
from trimtab_protocol.signing.keys import BadKey

Intents = dict[str, Intent | None]
DONE, FAILED, BAD_USAGE = 0, 1, 2
WRITE_LIMIT_S = 15.0
"""How long an operator's command waits until the broker has stored what it writes."""


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    return run_with(args, FUNCTIONS[args.function])


def run_with(args: argparse.Namespace, function: Callable[[argparse.Namespace, Target], int]) -> int:
    """Call the function of a command with the cluster that its options name; the exit code is that of `run`."""
    try:
        target = read_target(args)
        if getattr(args, "reason", None) is not None:
            args.reason = check_text(args.reason, "reason", MAX_REASON)  # before anybody waits for a broker
    except (BadConfiguration, BadMessage) as error:
        return refuse(str(error), BAD_USAGE)
    try:
        return function(args, target)
    except Refusal as error:
        return refuse(str(error), BAD_USAGE if error.fault is Fault.INVALID else FAILED)
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
        return parse(path)
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


# --- seeing -----------------------------------------------------------------------------------------------------------


def run_status(args: argparse.Namespace, target: Target) -> int:
    """Print leader and standbys, workers, loads, plan in flight and last decisions."""
    seen = look(target)
    if args.json:
        controllers = None if seen.controllers is None else [asdict(row) for row in seen.controllers]
        wanted = {"controllers": controllers, "wanted": intents_documents(seen.intents, seen.now)}
        print_json({**summary(seen), **json.loads(encode_status(seen.status)), **wanted})
    else:
        show_status(seen, console(), all_nodes=args.all)
    return DONE


def _read_what_is_wanted(target: Target) -> Intents | None:
    """The intents in force; None if they cannot be read, because the rest of the status is still worth showing."""
    try:
        return read_intents(target)
    except (ReadError, KafkaException):
        return None


def look(target: Target) -> Seen:
    """What the controllers have reported last.  Raises CommandError, ReadError, KafkaException."""
    status = read_status(target)
    if status is None:
        cluster = target.configuration.cluster
        raise CommandError(
            f"no controller has reported on cluster {cluster} yet: start one by `trimtab controller run`"
        )
    controllers, intents = _controllers(target), _read_what_is_wanted(target)
    return Seen(status=status, controllers=controllers, intents=intents, now=time.time())


def _controllers(target: Target) -> tuple[Member, ...] | None:
    """The group of controllers; None when the broker does not answer, since the rest is still worth showing."""
    try:
        return members(AdminClient(target.connection.client("trimtab-status")), target.topics.cluster)
    except (KafkaException, TimeoutError):
        return None


def console() -> Console:
    """A console for plain text."""
    return Console(highlight=False, markup=False)


def read_status(target: Target) -> Status | None:
    """The status of the acting controller or, if that is silent, the newest one.  Raises CommandError."""
    with reading(target.connection, "status") as consumer:
        found = drain(consumer, starts(consumer, [target.topics.status]))
    try:
        told = [decode_status(message.value()) for message in found.latest(target.topics.status)]
    except BadMessage as error:
        raise CommandError(f"the status cannot be read: {error}") from error
    return most_telling(told, time.time())


# --- saying what should be: names first, so that a wrong one is refused whether or not the broker answers -------------


def run_drain(args: argparse.Namespace, target: Target) -> int:
    """Ask the controller to drain a worker that it knows."""
    node = node_named(args.node)
    return carry_out(args, target, actions.drain(asked_now(args, target), node))


def run_undrain(args: argparse.Namespace, target: Target) -> int:
    """Cancel a drain, an operator's or the controller's own."""
    node = node_named(args.node)
    return carry_out(args, target, actions.undrain(asked_now(args, target), node))


def run_forget(args: argparse.Namespace, target: Target) -> int:
    """Ask the controller to forget an app or a worker that no longer runs."""
    if (args.app is None) == (args.worker is None):
        return refuse("name what to forget: either APP, or --worker NAME", BAD_USAGE)
    if args.app is not None:
        app = app_named(args.app)
        return carry_out(args, target, actions.forget_app(asked(args, status=read_status(target)), app))
    worker = worker_named(args.worker)
    return carry_out(args, target, actions.forget_worker(asked(args, status=read_status(target)), worker))


def run_pause(args: argparse.Namespace, target: Target) -> int:
    """Pause the controller, also one whose status cannot be read."""
    try:
        change = actions.pause(asked(args, status=read_status(target)))
    except CommandError:
        change = replace(actions.pause(asked(args)), caveats=())
    return carry_out(args, target, change)


def run_stop(args: argparse.Namespace, target: Target) -> int:
    """End the plans in flight of an app, or of all apps."""
    app = None if args.app is None else app_named(args.app)
    return carry_out(args, target, actions.stop(asked_now(args, target), app, with_pause=args.pause))


def run_resume(args: argparse.Namespace, target: Target) -> int:
    """End a pause or a hold."""
    if args.accept_journal:
        return carry_out(args, target, actions.accept_journal(asked(args, status=read_status(target))))
    return carry_out(args, target, actions.resume(asked_now(args, target)))


def asked(args: argparse.Namespace, *, status: Status | None = None, intents: Intents | None = None) -> Asked:
    """What the user of the command line asks for now, with what was read for it."""
    return Asked(by=who(), at=time.time(), reason=args.reason, status=status, intents=intents)


def asked_now(args: argparse.Namespace, target: Target) -> Asked:
    """What the user asks for, with the status and the intents in force; these are newer, so they are read last."""
    return asked(args, status=read_status(target), intents=read_intents(target))


def carry_out(args: argparse.Namespace, target: Target, change: Change, *, dry_run: bool = False) -> int:
    """Write what a change consists of, unless it is a dry run, and tell what follows."""
    if change.records and not dry_run:
        write_intents(target.connection, target.topics, change.records, limit_s=WRITE_LIMIT_S)
    told = f"nothing is written; without --dry-run: {change.text}" if dry_run else change.text
    text = "\n".join([told, *change.caveats])
    if args.json:
        print_json({"intent": change.key, "text": text})
    else:
        print(text)
    return DONE


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


def who() -> str:
    """The user and host that an intent names."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:200]


def print_json(document: dict[str, Any]) -> None:
    """Print one line of JSON."""
    print(json.dumps(document, allow_nan=False))


def refuse(reason: str, code: int) -> int:
    """Say why a command is not carried out, and return its exit code."""
    print(f"trimtab: {reason}", file=sys.stderr)
    return code


FUNCTIONS: dict[str, Callable[[argparse.Namespace, Target], int]] = {
    "status": run_status,
    "drain": run_drain,
    "undrain": run_undrain,
    "forget": run_forget,
    "pause": run_pause,
    "stop": run_stop,
    "resume": run_resume,
}
"""Command -> its function."""
