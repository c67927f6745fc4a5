"""What a recorded history is judged by, and what was found."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from tests.faults.recorded.history import Strike


class Broken(StrEnum):
    """A promise that was not kept; one name per kind of violation."""

    LOST = "lost"  # an input without an output
    REPEATED = "repeated"  # an input counted again, and no death explains it
    FOREIGN = "foreign"  # an output of an input that was never sent
    TWO_OWNERS = "two_owners"  # a worker wrote what was not its own at that time
    STALE_STATE = "stale_state"  # a count stepped back in a changelog: older state was written over newer
    ASTRAY = "astray"  # the group did not follow the placement
    COMMIT_BACK = "commit_back"  # a committed offset went back
    COMMIT_AHEAD = "commit_ahead"  # committed before it was done
    UNOWNED = "unowned"  # a key group without a living owner for too long
    WENT_ON = "went_on"  # a worker did more and more though nothing of it could be committed
    STOOD_STILL = "stood_still"  # a key group had inputs and did nothing for too long
    TAKEN_TWICE = "taken_twice"  # one hand-over carried out twice
    EPOCH_BACK = "epoch_back"  # a publication under an epoch that is not above the one before
    STALE = "stale"  # a command obeyed after its deadline
    REUSED_ID = "reused_id"  # one command id with two contents
    UNPLACED = "unplaced"  # a placement gives nobody what another one gave somebody
    JOURNAL_GAP = "journal_gap"  # an entry of the controller's journal is missing
    UNJOURNALLED = "unjournalled"  # published, and not in the journal before
    UNPUBLISHED = "unpublished"  # in the journal, and not published with it
    PLAN_AGAIN = "plan_again"  # a plan that begins twice, or while another one is under way
    NOT_TAKEN = "not_taken"  # a hand-over called done, and the workers did not do it
    UNNOTED = "unnoted"  # an agent's answer is not in its journal
    OBEYED_TWICE = "obeyed_twice"  # by the agents' journals a command was carried out twice
    DENIED = "denied"  # refused, and done nevertheless
    UNSIGNED = "unsigned"  # obeyed, and nobody who is trusted has signed it
    UNANSWERED = "unanswered"  # a command without an answer
    FORGED = "forged"  # somebody did what the controller did not command, or not to it
    WRONG_SUM = "wrong_sum"  # the final sums are not those of a recomputation
    WRONG_ANSWER = "wrong_answer"  # an output says what the table never had
    NO_RECORD = "no_record"  # the history has a hole: nothing can be said


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken promise; `at` in epoch seconds where there is a time."""

    broken: Broken
    text: str
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is allowed, in seconds.  docs/failure-model.md states the defaults; the first two are settings of the job.

    `commit_s` = between two commits of a worker, `session_s` = until the broker gives a silent worker up.
    """

    commit_s: float
    session_s: float
    commit_takes_s: float = 0.25
    handover_s: float = 8.0
    """From `released` to `took`, or to the rebalance that is asked for after 4 s."""
    rejoin_s: float = 15.0
    """From the end of a session, or of the broker's absence, until living workers have all key groups."""
    goes_on_s: float = 10.0
    """Of a key group that has inputs, until it does one, while broker and workers are left alone."""
    holds_s: float = 10.0
    """From a worker's loss of a broker until it does nothing more: 5 s after its next commit has begun, and what is
    begun then."""
    leaves_s: float = 15.0
    """For which a rebalance waits for a worker that lacks a broker: a quarter of Faust's `broker_rebalance_timeout`."""
    in_work_s: float = 30.0
    """For which a rebalance waits for events in work: half of Faust's `broker_rebalance_timeout`.  Then they are given
    up, and done again."""
    known_s: float = 10.0
    """From a placement's publication until every member of the group follows it."""
    clock_s: float = 0.05
    """By which times of two processes of one machine may differ."""


def untimed(commit_s: float, session_s: float) -> Bounds:
    """Bounds by which what is done is judged, and not how fast: the others are for hosts that have CPU left."""
    return Bounds(
        commit_s=commit_s, session_s=session_s, commit_takes_s=5.0,
        handover_s=60.0, rejoin_s=120.0, goes_on_s=120.0, known_s=60.0, clock_s=0.2,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one strike cost: inputs lost, outputs repeated and how many may be; and in seconds, the longest that a key
    group had no owner, until the last input that was held up for over a second was done, until it was steered again.
    """

    strike: Strike
    lost: int
    repeated: int
    allowed: int
    unowned_s: float
    held_up_s: float
    unsteered_s: float


ALWAYS = ("inputs", "extracted", "counted", "changed", "commits", "generations", "placements", "journal", "told")
IN_ROUNDS = ("commands", "acks", "handovers", "journals")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`seen` = how much of each kind was looked at: a check that saw nothing has shown nothing."""

    violations: tuple[Violation, ...]
    costs: tuple[Cost, ...]
    seen: Counter[str]

    def unseen(self, *, rounds: bool) -> list[str]:
        """Kinds of which there should be some and is none; `rounds` = key groups should have been handed over."""
        return [kind for kind in (*ALWAYS, *(IN_ROUNDS if rounds else ())) if not self.seen[kind]]
