"""The commands that ask the controller for something: those of the table of actions."""

import argparse
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from trimtab_controller.cli.operator import (
    WRITE_LIMIT_S,
    CommandError,
    Target,
    events_of,
    print_json,
    read_intents,
    read_status,
    refuse,
    says_yes,
    who,
)
from trimtab_controller.intents.change import Asked, Change
from trimtab_controller.intents.policies import BLIND, POLICIES
from trimtab_controller.kafka.intents import write_intents
from trimtab_process.exit_codes import BAD_USAGE, DONE
from trimtab_protocol.actions import ACTIONS

if TYPE_CHECKING:
    from trimtab_controller.intents.plans import Looked


def run_action(args: argparse.Namespace, target: Target) -> int:
    """Ask the controller for what the options say, unless the command is only to tell what would follow."""
    action = ACTIONS[args.action]
    given = {field.name: getattr(args, field.name, None) for field in action.fields}
    if action.either and sum(value is not None for value in given.values()) != 1:
        ways = (f"{field.flag} {field.metavar}" if field.flag else field.metavar for field in action.fields)
        return refuse(f"name what to {action.name}: either {', or '.join(map(str, ways))}", BAD_USAGE)
    decide = POLICIES[action.name](**given)
    readable = True
    try:
        status = read_status(target)
    except CommandError:
        if decide.func not in BLIND:
            raise
        status, readable = None, False
    intents = read_intents(target)  # these are newer than the status, so they are read last
    asked = Asked(by=who(), at=time.time(), reason=args.reason, status=status, intents=intents)
    change = decide(asked, looked=_look(target)) if action.looks else decide(asked)
    if not getattr(args, "yes", True):
        _ask(change)
    return _carry_out(args, target, change if readable else replace(change, caveats=()))


def _look(target: Target) -> "Looked":
    """What a controller would know now."""
    from trimtab_controller.intents.plans import Looked  # the decider takes a while to import
    from trimtab_controller.loop.preview import informed, read_cluster_state

    now = time.time()
    state = read_cluster_state(target.connection, target.configuration, now)
    decider = informed(state, target.configuration, now)
    return Looked(decider=decider, execution=state.found.execution, events=events_of(target, now))


def _ask(change: Change) -> None:
    """Show what follows, and go on only if the user wants it.  Raises CommandError."""
    if not sys.stdin.isatty():
        told = "\n".join([change.text, *change.caveats])
        raise CommandError(f"{told}\nto do so without being asked, add --yes")
    print("\n".join([change.text, *change.caveats]))
    if not says_yes("Go on? [y/N] "):
        raise CommandError("nothing is done")


def _carry_out(args: argparse.Namespace, target: Target, change: Change) -> int:
    """Write what a change consists of, unless it is a dry run, and tell what follows."""
    dry_run = getattr(args, "dry_run", False)
    if change.records and not dry_run:
        write_intents(target.connection, target.topics, change.records, limit_s=WRITE_LIMIT_S)
    told = f"nothing is written; without --dry-run: {change.text}" if dry_run else change.text
    text = "\n".join([told, *change.caveats])
    if args.json:
        print_json({"intent": change.key, "text": text})
    else:
        print(text)
    return DONE
