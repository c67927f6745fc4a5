"""Who owns which key group, and which of its events were done: the truth, apart from what anybody says."""

from dataclasses import dataclass, field

from tests.sim.simulated.timeline import Timeline
from trimtab_protocol.messages.names import KeyGroup, WorkerId

COMMIT_EVERY_S = 2.8
"""Faust's default interval of commits: what a killed worker did since is done once more."""


class Violation(AssertionError):
    """Something that must never be so."""


@dataclass(slots=True)
class Account:
    """`done` = events that were done at least once; `since`, `start` = when and where the present owner began."""

    rate: float
    load: float
    owner: object = None
    worker: WorkerId | None = None
    since: float = 0.0
    start: int = 0
    done: int = 0
    repeated: int = 0
    unowned_since: float = 0.0
    may_repeat: int = 0


@dataclass(slots=True)
class Ledger:
    """One account per key group.  Events come at `rate` per second; an owner keeps up with them."""

    timeline: Timeline
    began: float
    accounts: dict[KeyGroup, Account] = field(default_factory=dict)

    def open(self, key_group: KeyGroup, *, rate: float, load: float) -> None:
        """`load` in cores."""
        self.accounts[key_group] = Account(rate=rate, load=load, unowned_since=self.began)

    def own(self, key_group: KeyGroup, owner: object, worker: WorkerId, start: int) -> None:
        """A process owns it from now on, and goes on at offset `start`."""
        account = self.accounts[key_group]
        if account.owner is not None:
            raise Violation(f"two owners: {worker} takes {key_group}, which {account.worker} still owns")
        if start > account.done:
            raise Violation(f"lost: {worker} begins {key_group} at {start}, only {account.done} events were done")
        again = account.done - start
        if again > account.may_repeat:
            raise Violation(f"repeated: {again} events of {key_group} at {worker}, {account.may_repeat} explained")
        account.repeated += again
        account.owner, account.worker, account.since, account.start = owner, worker, self.timeline.now, start

    def owns(self, key_group: KeyGroup, owner: object) -> bool:
        """Whether this process owns it."""
        return self.accounts[key_group].owner is owner

    def disown(self, key_group: KeyGroup, owner: object, *, committed: bool) -> int:
        """The process owns it no more; returns the offset that was committed."""
        account = self.accounts[key_group]
        assert account.owner is owner
        position = max(account.start, self._produced(account, self.timeline.now))
        account.done = max(account.done, position)
        account.owner, account.worker, account.unowned_since = None, None, self.timeline.now
        account.may_repeat = 0
        if not committed:
            periods = (self.timeline.now - account.since) // COMMIT_EVERY_S
            last_commit = account.since + periods * COMMIT_EVERY_S
            committed_at = max(account.start, self._produced(account, last_commit)) if periods else account.start
            account.may_repeat = account.done - committed_at
            return committed_at
        return position

    def owned_by(self, owner: object) -> list[KeyGroup]:
        """What this process owns."""
        return [key_group for key_group, account in self.accounts.items() if account.owner is owner]

    def _produced(self, account: Account, at: float) -> int:
        return int((at - self.began) * account.rate)
