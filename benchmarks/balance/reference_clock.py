"""A clock for a core whose speed changes: what neighbours of a virtual machine take away is not counted.

A *reference second* is a CPU second of an undisturbed core of an AMD EPYC (Milan, 2.45 GHz; Python 3.11, numpy 2).
Some fixed work, which takes REFERENCE_S there, is done every EVERY_S of CPU time, and its own time does not count.
Half of it is plain Python, and half is numpy on arrays of the size of a small cluster, as in the balance solver.
Neighbours slow down other work less than this, or more, by up to a third.
"""

import time

import numpy as np

PYTHON_ROUNDS, NUMPY_ROUNDS = 5_000, 22
REFERENCE_S = 1.44e-3  # CPU time of one repeat on the undisturbed core: the first percentile of 746 in 15 s
REPEATS = 3  # the median of so many counts
EVERY_S = 0.1


class ReferenceClock:
    """Reference seconds of this process since the clock was made."""

    def __init__(self) -> None:
        self._values = np.random.default_rng(0).random(1_200)
        self._table = dict.fromkeys(range(1_024), 0)
        self._reference_s, self.factors = 0.0, [self._measured()]
        self._at = self._read = time.process_time()

    def __call__(self) -> float:
        """The reference seconds now."""
        now = time.process_time()
        self._reference_s += (now - self._read) / self.factors[-1]
        self._read = now
        if now - self._at >= EVERY_S:
            self.calibrate()
        return self._reference_s

    def calibrate(self) -> None:
        """Measure the speed of the core anew."""
        self.factors.append(self._measured())
        self._at = self._read = time.process_time()

    def _measured(self) -> float:
        """CPU seconds per reference second."""
        taken = []
        for _ in range(REPEATS):
            before = time.process_time()
            self._work()
            taken.append(time.process_time() - before)
        return float(np.median(taken)) / REFERENCE_S

    def _work(self) -> None:
        values, table, total = self._values, self._table, 0
        for number in range(PYTHON_ROUNDS):
            table[number & 1023] = total
            total += table.get((number * 7) & 1023, 0) & 255
        for _ in range(NUMPY_ROUNDS):
            ordered = values[np.argsort(values, kind="stable")]
            np.maximum(ordered - 0.5, 0).sum()
            np.minimum(values, 0.3).max()
