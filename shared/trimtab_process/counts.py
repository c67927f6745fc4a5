"""Prometheus counters that mirror totals kept elsewhere."""

from prometheus_client import Counter


class Followed(Counter):
    """Mirrors a total that is kept elsewhere.  When that total restarts at zero, Prometheus sees a counter reset."""

    def follow(self, count: int) -> None:
        """Set the total."""
        self._value.set(count)
