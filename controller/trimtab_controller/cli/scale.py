"""`trimtab scale APP N`: an operator's word on the number of workers of an app."""

import argparse
import time

from trimtab_controller.cli import operator
from trimtab_controller.cli.known import CommandError, Target
from trimtab_controller.cli.operator import read_status, say, take_back, who, write
from trimtab_controller.cli.seen import Seen, State
from trimtab_controller.decider.view import first_few
from trimtab_protocol.messages.decode import NAME_PATTERN
from trimtab_protocol.messages.intents import MAX_WORKERS, Scale, scale_key
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.status import Status

AUTO = "auto"
NOT_NOW = {
    State.SILENT: "but no controller is running: it happens when one leads again, see `trimtab status`",
    State.HOLD: "but the controller is on hold and changes nothing: `trimtab status` shows why, and how to end it",
    State.PAUSED: "but the controller is paused: it happens after `trimtab resume`",
    State.DRY_RUN: "but the controller is a dry run: it only logs what it would do",
}


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    return operator.run_with(args, run_scale)


def run_scale(args: argparse.Namespace, target: Target) -> int:
    """Tell the controller how many workers an app should have, or take that back."""
    if not NAME_PATTERN.fullmatch(args.app):
        raise CommandError(f"found {args.app!r}, expected an app's id")
    app = AppId(args.app)
    if args.workers == AUTO:
        return take_back(
            args,
            target,
            scale_key(app),
            f"the size of {app} follows its demand again, as [scaling] says",
            f"nobody has set the size of {app}",
        )
    workers = _count(args.workers)
    status = read_status(target)
    known = [row.app for row in status.apps] if status else []
    if known and app not in known:
        raise CommandError(f"no app {app!r} reports; there are {first_few(known)}")
    intent = Scale(app=app, workers=workers, by=who(), at=time.time(), reason=args.reason)
    write(target, intent.key, intent)
    text = f"{app} will have {workers} worker{'' if workers == 1 else 's'}; `trimtab scale {app} auto` ends that"
    return say(args, "\n".join([text, *_caveats(status, app, workers)]), intent.key)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_WORKERS:
        raise CommandError(f"found {text[:80]!r}, expected a number of workers from 1 to {MAX_WORKERS}, or {AUTO!r}")
    return int(text)


def _caveats(status: Status | None, app: AppId, workers: int) -> list[str]:
    """The reasons why this does not happen at once, or not in full."""
    if status is None:
        return ["no controller has reported yet: it happens when one leads"]
    state = Seen(status=status, controllers=None, now=time.time()).state
    caveats = [NOT_NOW[state]] if state in NOT_NOW else []
    size = next((row.size for row in status.apps if row.app == app and row.size is not None), None)
    if size is not None and size.workers is not None:
        pool = sum(row.app == app for row in status.pool) + len(size.leaving)
        if workers > size.workers + pool:
            caveats.append(f"but only {size.workers} run, and {pool} more can be started; `trimtab status` lists them")
    return caveats
