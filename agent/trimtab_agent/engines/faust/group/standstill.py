"""For how long key groups have stood still since the consumer group stopped this worker's inputs.

A rebalance stops the inputs of every member, whoever has caused it: a worker that starts, stops, crashes or is lost.
Hand-overs do not come here: they stop single key groups, and say themselves for how long.
"""


class Standstill:
    """Counts from the revocation until inputs flow again, for each key group that the worker owns then.

    A key group that it has got from another worker counts as long as its own: all members are stopped at nearly the
    same time.  For how long a key group had no owner before, nobody here can say.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._total: tuple[float, int] | None = None
        self._known = True

    @property
    def total(self) -> tuple[float, int] | None:
        """Key-group seconds since the start, and how many key groups that were; None = unknown."""
        return self._total if self._known else None

    def begin(self, now: float) -> None:
        """Inputs are stopped.  Repetitions until they flow again change nothing."""
        self._total = self._total or (0.0, 0)
        if self._since is None:
            self._since = now

    def end(self, now: float, key_groups: int | None) -> None:
        """Inputs flow again, of so many key groups; None = it is not known of how many, now and from now on."""
        since, self._since = self._since, None
        if key_groups is None:
            self._known = False
        elif since is not None and self._total is not None:
            seconds, count = self._total
            self._total = seconds + key_groups * max(0.0, now - since), count + key_groups
