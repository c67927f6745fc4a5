"""Key groups whose hand-over has failed because of themselves: they stay for a while, and each time twice as long.

An event that stays in work, or a changelog that cannot be read to its end, is still there in the next window.  Each
try may stop the key group for seconds, so the next one waits.  Operators who move it by hand do not wait.  A new leader
does not know of earlier failures and tries once more.
"""

from dataclasses import dataclass

from trimtab_controller.execution.state import ENDED, Execution, HandoverPhase
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.names import AppId, KeyGroup
from trimtab_protocol.wording import first_few

FIRST_S, LONGEST_S = 30.0, 3600.0
"""How long a key group is left alone after its first failure, and at most."""
OF_KEY_GROUP = frozenset({Refusal.DRAIN_TIMEOUT, Refusal.CATCH_UP_TIMEOUT, Refusal.PRECONDITION, Refusal.FAILED})
"""The refusals after which another try at once would most likely fail too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The last of `times` failures in a row; the key group is left alone until `until` (epoch seconds)."""

    times: int
    until: float
    detail: str


class LeftAlone:
    """Follows the hand-overs that end."""

    def __init__(self) -> None:
        self._failures: dict[KeyGroup, Failure] = {}
        self._seen: frozenset[str] = frozenset()

    def observe(self, now: float, execution: Execution) -> None:
        """Look at the hand-overs of an execution; call it at each change."""
        rows = (row for row in execution.rounds.values() if not row.lost)  # what is lost cannot stay
        ended = {each.id: each for row in rows for each in row.handovers if each.phase in ENDED}
        for handover in (ended[name] for name in ended.keys() - self._seen):
            for place, key_group in enumerate(handover.key_groups, 1):  # one after the other: most are not to blame
                if handover.phase is HandoverPhase.DONE:
                    self._failures.pop(key_group, None)
                elif handover.refusal in OF_KEY_GROUP:
                    before = self._failures.get(key_group)
                    times = 1 if before is None else before.times + 1
                    until = now + min(LONGEST_S, place * FIRST_S * 2.0 ** min(times - 1, 20))
                    self._failures[key_group] = Failure(times=times, until=until, detail=handover.detail or "")
        self._seen = frozenset(ended)
        self._failures = {each: of for each, of in self._failures.items() if now < of.until + LONGEST_S}

    def forget(self, app: AppId | None) -> None:
        """Forget an app."""
        self._failures = {each: of for each, of in self._failures.items() if each.app != app}

    def pinned(self, now: float, app: AppId) -> frozenset[KeyGroup]:
        """The key groups of an app that no plan moves now."""
        return frozenset(each for each, of in self._failures.items() if each.app == app and now < of.until)

    def describe(self, now: float, app: AppId) -> str:
        """Which these are and why, for operators; empty if there are none."""
        rows = [f"{each} for {self._failures[each].until - now:.0f} s, {self._failures[each].detail}"
                for each in sorted(self.pinned(now, app))]  # fmt: skip
        return f"left alone after a hand-over that failed: {first_few(rows)}" if rows else ""
