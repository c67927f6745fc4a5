"""The operator's commands: show what the controller sees and does, and tell it what to do."""

import argparse
import getpass
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from rich.console import Console

from trimtab_controller.cli.known import CommandError, Target, read_known, view_of
from trimtab_controller.cli.plan_view import decision_document, show_decision
from trimtab_controller.cli.seen import SILENT_AFTER_S, Seen, State, most_telling, summary
from trimtab_controller.cli.status_view import show_status
from trimtab_controller.configuration import BadConfiguration, decode, load
from trimtab_controller.decider.instance import instance_of
from trimtab_controller.decider.view import first_few
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.reader import ReadError, drain, reading, starts
from trimtab_controller.leadership.group import Member, members
from trimtab_controller.loop.preview import preview_decision, read_cluster_state
from trimtab_models.instances import encode_snapshot
from trimtab_process.kafka_errors import is_transient
from trimtab_protocol.messages.decode import NAME_PATTERN, BadMessage
from trimtab_protocol.messages.intents import (
    PAUSE_KEY,
    AcceptJournal,
    Drain,
    ForgetApp,
    ForgetWorker,
    Intent,
    Pause,
    Stop,
    Undrain,
    decode_intent,
    drain_key,
    encode_intent,
)
from trimtab_protocol.messages.names import AppId, Topics, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import Status, decode_status, encode_status
from trimtab_protocol.signing.keys import BadKey

DONE, FAILED, BAD_USAGE = 0, 1, 2
CONFIG_VARIABLE = "TRIMTAB_CONFIG"
"""Environment variable that names controller.toml where no option names the cluster."""
WRITE_LIMIT_S = 15.0
"""How long an operator's command waits until the broker has stored what it writes."""


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    return run_with(args, FUNCTIONS[args.function])


def run_with(args: argparse.Namespace, function: Callable[[argparse.Namespace, Target], int]) -> int:
    """Call the function of a command with the cluster that its options name; the exit code is that of `run`."""
    try:
        target = read_target(args)
    except (BadConfiguration, BadMessage) as error:
        return refuse(str(error), BAD_USAGE)
    try:
        return function(args, target)
    except (CommandError, ReadError, BadKey) as error:
        return refuse(str(error), FAILED)
    except BadMessage as error:
        return refuse(str(error), BAD_USAGE)
    except KafkaException as error:
        where, fault = target.configuration.kafka.bootstrap_servers, error.args[0]
        remedy = " (is it up, and reachable from this machine?)" if is_transient(fault) else ""
        return refuse(f"Kafka at {where}: {fault.str()}{remedy}", FAILED)


def read_target(args: argparse.Namespace) -> Target:
    """The cluster that the options name.  Raises BadConfiguration, BadMessage."""
    named = None if args.bootstrap else os.environ.get(CONFIG_VARIABLE)
    path = args.config or (Path(named) if named else None)
    if path is not None:
        configuration = load(path)
    elif args.bootstrap and args.cluster:
        document = {
            "controller": {"cluster": args.cluster},
            "kafka": {"bootstrap_servers": args.bootstrap},
            "stream": {"checkpoint_dir": "none"},  # no stream is run here
        }
        configuration = decode(document)
    else:
        raise BadConfiguration("name the cluster: --config FILE, or --bootstrap HOST:PORT and --cluster NAME")
    connection = Connection(kafka=configuration.kafka)
    return Target(configuration=configuration, connection=connection, topics=Topics(configuration.cluster))


# --- seeing -----------------------------------------------------------------------------------------------------------


def run_status(args: argparse.Namespace, target: Target) -> int:
    """Print leader and standbys, workers, loads, plan in flight and last decisions."""
    status = read_status(target)
    if status is None:
        cluster = target.configuration.cluster
        raise CommandError(
            f"no controller has reported on cluster {cluster} yet: start one by `trimtab controller run`"
        )
    seen = Seen(status=status, controllers=_controllers(target), now=time.time())
    if args.json:
        controllers = None if seen.controllers is None else [asdict(row) for row in seen.controllers]
        print_json({**summary(seen), **json.loads(encode_status(status)), "controllers": controllers})
    else:
        show_status(seen, console(), all_nodes=args.all)
    return DONE


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


def run_plan(args: argparse.Namespace, target: Target) -> int:
    """Print what the controller would do now, ignoring pause and minimum interval."""
    from trimtab_controller.solver.balance import answer

    now = time.time()
    decision = preview_decision(
        read_cluster_state(target.connection, target.configuration, now), target.configuration, now, answer
    )
    if args.json:
        print_json(decision_document(decision))
    else:
        show_decision(decision, console())
    return DONE


def run_snapshot(args: argparse.Namespace, target: Target) -> int:
    """Write the present cluster to an instance file."""
    known = read_known(target)
    instance = instance_of(view_of(known, args.app, "--app"), target.configuration.balance)
    text = json.dumps(encode_snapshot(instance), allow_nan=False)
    if args.out is None:
        print(text)
        return DONE
    try:
        args.out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{args.out}: {error.strerror or error}") from error
    return DONE


# --- saying what should be --------------------------------------------------------------------------------------------


def run_drain(args: argparse.Namespace, target: Target) -> int:
    """Ask the controller to drain a worker that it knows."""
    node = _name(args.node)
    status = read_status(target)
    known = [row.worker for row in status.nodes] if status else []
    if known and node not in known:
        raise CommandError(f"no worker {node!r} reports; there are {first_few(known)}")
    intent = Drain(worker=WorkerId(node), by=who(), at=time.time(), reason=args.reason)
    write(target, intent.key, intent)
    text = (
        f"{node} will be drained as the budget of each round allows, then stopped; `trimtab undrain {node}` cancels it"
    )
    return say(args, "\n".join([text, *_caveats(status, WorkerId(node))]), intent.key)


def _caveats(status: Status | None, node: WorkerId) -> list[str]:
    """The reasons why a drain does not start at once."""
    if status is None:
        return ["no controller has reported yet: the drain starts when one leads"]
    why_not = {
        State.SILENT: "but no controller is running: the drain starts when one leads again, see `trimtab status`",
        State.HOLD: "but the controller is on hold and moves nothing: `trimtab status` shows why, and how to end it",
        State.PAUSED: "but the controller is paused: the drain starts after `trimtab resume`",
        State.DRY_RUN: "but the controller is a dry run: it only logs what it would do",
    }
    state = Seen(status=status, controllers=None, now=time.time()).state
    caveats = [why_not[state]] if state in why_not else []
    app = next((row.app for row in status.nodes if row.worker == node), None)
    others = [row for row in status.nodes if row.app == app and row.worker != node and not row.draining]
    if status.nodes and not others:
        caveats.append("but no other worker could take its key groups: it keeps them until there is one")
    return caveats


def run_undrain(args: argparse.Namespace, target: Target) -> int:
    """Cancel a drain, an operator's or the controller's own."""
    node = WorkerId(_name(args.node))
    key = drain_key(node)
    status = read_status(target)
    leaving = [app.size.leaving for app in status.apps if app.size is not None] if status else []
    if any(node in workers for workers in leaving) and key not in read_intents(target):
        intent = Undrain(worker=node, by=who(), at=time.time(), reason=args.reason)
        write(target, intent.key, intent)
        text = f"{node} stays: it takes key groups again; `trimtab scale` sets the size of an app for longer"
        return say(args, text, intent.key)
    text, idle = f"the drain of {node} is cancelled: it takes key groups again", f"{node} is not being drained"
    return take_back(args, target, key, text, idle)


def run_forget(args: argparse.Namespace, target: Target) -> int:
    """Ask the controller to forget an app or a worker that no longer runs."""
    if (args.app is None) == (args.worker is None):
        return refuse("name what to forget: either APP, or --worker NAME", BAD_USAGE)
    by, at = who(), time.time()
    status = read_status(target)
    nodes = () if status is None or at - status.at > SILENT_AFTER_S else status.nodes
    running = [row for row in nodes if row.state is not WorkerState.AWAY]
    intent: Intent
    if args.app is not None:
        intent = ForgetApp(app=AppId(_name(args.app, "an app's id")), by=by, at=at, reason=args.reason)
        found, what = [row for row in running if row.app == args.app], f"app {args.app}"
    else:
        intent = ForgetWorker(worker=WorkerId(_name(args.worker)), by=by, at=at, reason=args.reason)
        found, what = [row for row in running if row.worker == args.worker], f"worker {args.worker}"
    if found:
        where = first_few(f"{row.worker} on {row.host}" for row in found)
        raise CommandError(f"{what} still runs: {where}; stop it first")
    write(target, intent.key, intent)
    text = f"{what} will be forgotten with the next window; `trimtab status` then lists it among the decisions"
    return say(args, text, intent.key)


def run_pause(args: argparse.Namespace, target: Target) -> int:
    """Pause the controller."""
    intent = Pause(by=who(), at=time.time(), reason=args.reason)
    write(target, intent.key, intent)
    return say(args, "paused: a plan in flight is finished, no new one starts until `trimtab resume`", intent.key)


def run_stop(args: argparse.Namespace, target: Target) -> int:
    """End the plans in flight of an app, or of all apps."""
    app = None if args.app is None else AppId(_name(args.app, "an app's id"))
    status = read_status(target)
    known = [row.app for row in status.apps] if status else []
    if app is not None and known and app not in known:
        raise CommandError(f"no app {app!r} reports; there are {first_few(known)}")
    by, at = who(), time.time()
    if args.pause:
        pause = Pause(by=by, at=at, reason=args.reason)
        write(target, pause.key, pause)
    stop = Stop(app=app, by=by, at=at, reason=args.reason)
    write(target, stop.key, stop)
    plans = [row.plan for row in status.plans_in_flight if app in (None, row.app)] if status else []
    what = f"stopping plan {first_few(plans)}" if plans else "no plan was reported in flight; stopping any that is"
    then = (
        "no new one starts until `trimtab resume`" if args.pause else "new ones may follow, see `trimtab stop --pause`"
    )
    return say(args, f"{what}: released key groups arrive, all others stay where they are; {then}", stop.key)


def run_resume(args: argparse.Namespace, target: Target) -> int:
    """End a pause or a hold."""
    if args.accept_journal:
        return _accept_journal(args, target)
    idle = "the controller is not paused; `trimtab resume --accept-journal` ends a hold"
    return take_back(args, target, PAUSE_KEY, "the controller decides again", idle)


def _accept_journal(args: argparse.Namespace, target: Target) -> int:
    status = read_status(target)
    if status is None or status.hold is None:
        raise CommandError("the controller is not on hold: there is nothing to accept")
    intent = AcceptJournal(hold=status.hold.id, by=who(), at=time.time(), reason=args.reason)
    write(target, intent.key, intent)
    return say(
        args,
        f"accepted: {status.hold.text}; the controller rebuilds its state from the placement and the reports",
        intent.key,
    )


def take_back(args: argparse.Namespace, target: Target, key: str, text: str, idle: str) -> int:
    """Revoke the intent with this key; `idle` is said if there is none."""
    if key not in read_intents(target):
        return say(args, f"nothing to do: {idle}", key)
    write(target, key, None)
    return say(args, text, key)


def read_intents(target: Target) -> dict[str, Intent | None]:
    """The intents in force, by key; None for one that cannot be read (it can still be cancelled)."""
    with reading(target.connection, "intents") as consumer:
        found = drain(consumer, starts(consumer, [target.topics.intents]))
    intents: dict[str, Intent | None] = {}
    for message in found.latest(target.topics.intents):
        try:
            intents[message.key().decode(errors="replace")] = decode_intent(message.key(), message.value())
        except BadMessage:
            intents[message.key().decode(errors="replace")] = None
    return intents


def write(target: Target, key: str, intent: Intent | None) -> None:
    """Write one intent, or its tombstone, and wait until the broker has stored it.  Raises CommandError, BadMessage."""
    value = None if intent is None else encode_intent(intent)
    if value is not None:
        decode_intent(key.encode(), value)  # check it here: a refusal by the controller would not be seen here
    failures: list[str] = []
    producer = Producer(target.connection.client("trimtab-cli", enable_idempotence=True))
    producer.produce(
        target.topics.intents,
        key=key.encode(),
        value=value,
        on_delivery=lambda error, _: failures.append(error.str()) if error is not None else None,
    )
    if producer.flush(WRITE_LIMIT_S) or failures:
        why = failures[0] if failures else f"no answer within {WRITE_LIMIT_S:g} s"
        raise CommandError(f"nothing was written: Kafka at {target.configuration.kafka.bootstrap_servers}: {why}")


def _name(text: str, what: str = "a worker's name") -> str:
    if not NAME_PATTERN.fullmatch(text):
        raise CommandError(f"found {text!r}, expected {what}")
    return text


def who() -> str:
    """The user and host that an intent names."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:200]


def say(args: argparse.Namespace, text: str, key: str) -> int:
    """Tell what was written."""
    if args.json:
        print_json({"intent": key, "text": text})
    else:
        print(text)
    return DONE


def print_json(document: dict[str, Any]) -> None:
    """Print one line of JSON."""
    print(json.dumps(document, allow_nan=False))


def refuse(reason: str, code: int) -> int:
    """Say why a command is not carried out, and return its exit code."""
    print(f"trimtab: {reason}", file=sys.stderr)
    return code


FUNCTIONS: dict[str, Callable[[argparse.Namespace, Target], int]] = {
    "status": run_status,
    "plan": run_plan,
    "snapshot": run_snapshot,
    "drain": run_drain,
    "undrain": run_undrain,
    "forget": run_forget,
    "pause": run_pause,
    "stop": run_stop,
    "resume": run_resume,
}
"""Command -> its function."""
