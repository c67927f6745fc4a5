"""Counts that others keep, served as counters of Prometheus."""

from prometheus_client import Counter


class Followed(Counter):
    """Follows a count that somebody else keeps.  One that begins anew there is what Prometheus calls a reset."""

    def follow(self, count: int) -> None:
        """It is so many now."""
        self._value.set(count)
