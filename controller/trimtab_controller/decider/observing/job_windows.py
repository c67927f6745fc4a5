"""What a window shows of how far each app is behind, for the execution."""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.execution.events import JobsSeen
from trimtab_controller.execution.lags import JobWindow, Waiting
from trimtab_protocol.messages.codec import UNKNOWN
from trimtab_protocol.messages.key_group_table import KeyGroupBlock
from trimtab_protocol.messages.names import AppId, OperatorId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.snapshot import Snapshot

Floats = NDArray[np.float64]

WHOLE_SHARE = 0.9
"""A worker has reported all of a window if its samples cover so much of it, as for hosts in the stream."""
NEWEST_SHARE = 0.2
"""Weight of the newest window in the usual rate of a key group: a job that stops keeps nearly the rate it had."""


class JobWindows:
    """Takes the windows in turn, and remembers how much each key group usually processes."""

    def __init__(self) -> None:
        self._usual: dict[tuple[AppId, OperatorId], Floats] = {}

    def see(self, snapshot: Snapshot) -> JobsSeen:
        """The backlog and rate of each app and its workers; unknown where they are so of one key group."""
        whole: dict[AppId, Floats] = {}
        workers: dict[AppId, dict[WorkerId, Floats]] = {}
        covered_s: dict[tuple[AppId, WorkerId], float] = defaultdict(float)
        self._usual = {(each.app, each.operator): self._usual_rates(each) for each in snapshot.blocks}
        for block in snapshot.blocks:
            backlog, rate = (_known(column) for column in (np.frombuffer(block.backlog, np.int64), block.tuples_in_s))
            whole[block.app] = whole.get(block.app, np.zeros(2)) + np.array([backlog.sum(), rate.sum()])
            usual = self._usual[block.app, block.operator][np.frombuffer(block.partition, np.int64)]
            of_app = workers.setdefault(block.app, {})
            sums = _sums(block, np.maximum(backlog - 1.0, 0.0), usual)
            longest = np.zeros(len(block.workers))
            np.maximum.at(longest, np.frombuffer(block.worker, np.int64), np.frombuffer(block.covered_s))
            for worker, found, seconds in zip(block.workers, sums.T, longest.tolist(), strict=True):
                of_app[worker] = of_app.get(worker, np.zeros(2)) + found
                covered_s[block.app, worker] = max(covered_s[block.app, worker], seconds)
        measured = _measured(snapshot, covered_s)
        return JobsSeen(
            start_s=snapshot.start_ms / 1000.0,
            end_s=snapshot.end_ms / 1000.0,
            jobs={
                app: JobWindow(
                    whole=_waiting(sums),
                    workers={each: _waiting(row) for each, row in workers[app].items()},
                    measured=frozenset(measured[app]),
                    idle=frozenset(measured[app].difference(workers[app])),
                )
                for app, sums in whole.items()
            },
        )

    def _usual_rates(self, block: KeyGroupBlock) -> Floats:
        """The usual rate of each partition of an operator, with this window; NaN = unknown."""
        partition = np.frombuffer(block.partition, np.int64)
        usual = np.full(int(partition.max()) + 1, np.nan)
        if (before := self._usual.get((block.app, block.operator))) is not None:
            shared = min(len(before), len(usual))
            usual[:shared] = before[:shared]
        old, new = usual[partition], _known(block.tuples_in_s)
        usual[partition] = np.where(np.isnan(new), old, np.where(np.isnan(old), new, old + NEWEST_SHARE * (new - old)))
        return usual


def _known(column: object) -> Floats:
    """The values of a column; NaN = unknown."""
    values = np.asarray(column)
    return np.where(values == UNKNOWN, np.nan, values.astype(np.float64))


def _sums(block: KeyGroupBlock, *columns: Floats) -> Floats:
    """The sums of the columns (rows) by worker (columns) of an operator; NaN = unknown of one of its key groups."""
    place = np.frombuffer(block.worker, np.int64)
    return np.array([np.bincount(place, weights=column, minlength=len(block.workers)) for column in columns])


def _measured(snapshot: Snapshot, covered_s: dict[tuple[AppId, WorkerId], float]) -> dict[AppId, set[WorkerId]]:
    """The workers of each app that have reported all of the window.

    One whose samples are incomplete has, if those of one of its key groups cover the window.
    """
    least_s = WHOLE_SHARE * (snapshot.end_ms - snapshot.start_ms) / 1000.0
    found: dict[AppId, set[WorkerId]] = defaultdict(set)
    for node in snapshot.nodes:
        if node.app is None or node.state is not WorkerState.RUNNING or node.covered_s < least_s:
            continue
        if node.complete or covered_s.get((node.app, node.worker), 0.0) >= least_s:
            found[node.app].add(node.worker)
    return found


def _waiting(sums: Floats) -> Waiting:
    backlog, rate = (None if np.isnan(value) else float(value) for value in sums)
    return Waiting(backlog=backlog, rate=rate)
