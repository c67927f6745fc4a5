"""What operators ask of the controller."""

import uuid
from collections.abc import Sequence
from typing import Required, TypedDict, Unpack

from trimtab_client.errors import ConsoleError
from trimtab_client.link import Link
from trimtab_protocol.console_documents import ChangeDocument


class ChangeOptions(TypedDict, total=False):
    """What each change is asked for with."""

    reason: Required[str]
    """Why; the status shows it."""
    dry_run: bool
    """The answer tells what would follow, and nothing is written."""
    key: str | None
    """The idempotency key; None: a new one."""


class Changes:
    """The changes, a method for each action of `trimtab_protocol.actions`; each needs a token with the role operator.

    The console carries a change out once per key, and repeats its answer, so that a request whose answer was lost is
    sent again.  All methods raise ConsoleError, whose `key` is that of the change: ask again with it.  The answer comes
    when the brokers have stored the change.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    def drain(self, worker: str, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Move everything off a worker, then stop it."""
        return self._change("drain", {"worker": worker}, **options)

    def undrain(self, worker: str, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Cancel a drain."""
        return self._change("undrain", {"worker": worker}, **options)

    def pause(self, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Start no new plan; a plan in flight is finished."""
        return self._change("pause", {}, **options)

    def resume(self, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """End a pause."""
        return self._change("resume", {}, **options)

    def stop(self, app: str | None = None, *, pause: bool = False, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """End the plans in flight, of one app or of all (None); with `pause`, start no new one either."""
        return self._change("stop", {"app": app, "pause": pause}, **options)

    def scale(self, app: str, workers: int | None, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Say how many workers an app should have, whatever its demand is; None: the size follows the demand again."""
        return self._change("scale", {"app": app, "workers": workers}, **options)

    def maintenance(self, host: str, for_s: float | None, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Keep the workers of a host off for so many seconds, then start them again; None: that ends now."""
        return self._change("maintenance", {"host": host, "for_s": for_s}, **options)

    def rolling_restart(self, app: str, *, cancel: bool = False, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Restart all workers of an app, host by host; `cancel`: end that, and start what is stopped."""
        return self._change("rolling-restart", {"app": app, "cancel": cancel}, **options)

    def forget_app(self, app: str, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Drop an app that is gone for good."""
        return self._change("forget", {"app": app}, **options)

    def forget_worker(self, worker: str, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Drop the name of a worker that is gone for good."""
        return self._change("forget", {"worker": worker}, **options)

    def approve(self, plan: str, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Carry out a plan that waits for approval."""
        return self._change("approve", {"plan": plan}, **options)

    def reject(self, plan: str, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Do not carry out a plan that waits for approval."""
        return self._change("reject", {"plan": plan}, **options)

    def move(self, key_groups: Sequence[str], worker: str, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Move key groups of one app (`app/operator/partition`) to a worker, in a plan of their own."""
        return self._change("move", {"key_groups": list(key_groups), "worker": worker}, **options)

    def undo(self, plan: str, *, partly: bool = False, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Move back what a plan has moved, in a plan of its own; a dry run tells what that costs.

        `partly`: what can go back, and the caveats tell what cannot and why; otherwise all of it or nothing.
        """
        return self._change("undo", {"plan": plan, "partly": partly}, **options)

    def add_rule(
        self,
        name: str,
        kind: str,
        *,
        app: str | None = None,
        operator: str | None = None,
        key_groups: str | None = None,
        workers: Sequence[str] = (),
        hosts: Sequence[str] = (),
        zones: Sequence[str] = (),
        priority: int | None = None,
        until: float | None = None,
        **options: Unpack[ChangeOptions],
    ) -> ChangeDocument:
        """Keep a rule about where key groups may be, with the keys of `[[rule]]` in controller.toml.

        `until` in epoch seconds.  A dry run tells how many key groups have to move, and what cannot hold.
        """
        said: dict[str, object] = {"name": name, "kind": kind, "app": app, "operator": operator, "until": until}
        said |= {"key_groups": key_groups, "workers": list(workers), "hosts": list(hosts), "zones": list(zones)}
        return self._change("add-rule", {**said, "priority": priority}, **options)

    def remove_rule(self, name: str, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """Take back a rule that an operator has added."""
        return self._change("remove-rule", {"name": name}, **options)

    def accept_journal(self, hold: str | None = None, **options: Unpack[ChangeOptions]) -> ChangeDocument:
        """End a hold: carry on without the state that was lost with the journal.

        `hold` = `cluster().hold_id`, as the operator has seen it: another hold is not ended.
        """
        return self._change("accept-journal", {"hold": hold}, **options)

    def _change(
        self, action: str, arguments: dict[str, object], *, reason: str, dry_run: bool = False, key: str | None = None
    ) -> ChangeDocument:
        chosen = None if dry_run else key or uuid.uuid4().hex
        body = {**arguments, "reason": reason, "dry_run": dry_run}
        try:
            return self._link.post(ChangeDocument, "intents", action, body=body, key=chosen)
        except ConsoleError as error:
            error.key = chosen
            raise
