"""Rate limits per sender, and which of many equal faults are logged."""

from dataclasses import dataclass


@dataclass(slots=True)
class RateLimit:
    """A token bucket: at most `burst` at once and `rate` per second."""

    rate: float
    burst: float
    _level: float = 0.0
    _at: float = 0.0

    def has(self, now: float, amount: float = 1.0) -> bool:
        """Whether `amount` is left at `now` (seconds, any origin)."""
        return self._level_at(now) + amount <= self.burst

    def spend(self, now: float, amount: float = 1.0) -> bool:
        """Take `amount` at `now` (seconds, any origin) if that much is left; returns whether it was.

        A clock that is set back changes nothing.
        """
        self._level = self._level_at(now)
        self._at = now
        if self._level + amount > self.burst:
            return False
        self._level += amount
        return True

    def _level_at(self, now: float) -> float:
        return max(0.0, self._level - max(0.0, now - self._at) * self.rate)


class RateLimits:
    """One rate limit per sender name.  Remembers the `most` senders that sent last."""

    def __init__(self, *, rate: float, burst: float, most: int) -> None:
        self._rate = rate
        self._burst = burst
        self._most = most
        self._of: dict[str | bytes, RateLimit] = {}

    def __len__(self) -> int:
        return len(self._of)

    def has(self, sender: str | bytes, now: float) -> bool:
        """Whether the limit of this sender has one left."""
        return sender not in self._of or self._of[sender].has(now)

    def spend(self, sender: str | bytes, now: float, amount: float = 1.0) -> bool:
        """Take `amount` from the limit of this sender; returns whether that much was left."""
        rate_limit = self._of.pop(sender, None) or RateLimit(rate=self._rate, burst=self._burst)
        self._of[sender] = rate_limit
        if len(self._of) > self._most:
            del self._of[next(iter(self._of))]
        return rate_limit.spend(now, amount)


def is_told(count: int) -> bool:
    """Whether to log the `count`-th fault of a kind: the 1st, 10th, 100th and every 1000th."""
    return count in (1, 10, 100) or count % 1000 == 0
