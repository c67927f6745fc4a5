"""What a window shows of how far each app is behind, for the execution."""

import numpy as np
from numpy.typing import NDArray

from trimtab_controller.execution.events import JobsSeen
from trimtab_controller.execution.lags import JobWindow, Waiting
from trimtab_protocol.messages.columns import UNKNOWN
from trimtab_protocol.messages.key_group_table import KeyGroupBlock
from trimtab_protocol.messages.names import AppId, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

Floats = NDArray[np.float64]


def jobs_seen(snapshot: Snapshot) -> JobsSeen:
    """The backlog and rate of each app and its workers; unknown where they are so of one key group."""
    whole: dict[AppId, Floats] = {}
    workers: dict[AppId, dict[WorkerId, Floats]] = {}
    for block in snapshot.blocks:
        sums = _sums(block)
        whole[block.app] = whole.get(block.app, np.zeros(2)) + sums.sum(axis=1)
        of_app = workers.setdefault(block.app, {})
        for worker, found in zip(block.workers, sums.T, strict=True):
            of_app[worker] = of_app.get(worker, np.zeros(2)) + found
    return JobsSeen(
        start_s=snapshot.start_ms / 1000.0,
        end_s=snapshot.end_ms / 1000.0,
        jobs={
            app: JobWindow(whole=_waiting(sums), workers={each: _waiting(row) for each, row in workers[app].items()})
            for app, sums in whole.items()
        },
    )


def _sums(block: KeyGroupBlock) -> Floats:
    """Backlog and rate (rows) of each worker (columns) of an operator; NaN = unknown of one of its key groups."""
    place = np.frombuffer(block.worker, np.int64)
    columns = np.frombuffer(block.backlog, np.int64), np.frombuffer(block.tuples_in_s)
    known = [np.where(column == UNKNOWN, np.nan, column) for column in columns]
    return np.array([np.bincount(place, weights=column, minlength=len(block.workers)) for column in known])


def _waiting(sums: Floats) -> Waiting:
    backlog, rate = (None if np.isnan(value) else float(value) for value in sums)
    return Waiting(backlog=backlog, rate=rate)
