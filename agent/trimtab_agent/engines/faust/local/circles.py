"""Which agents feed which through local topics, and which link closes a circle.

This cannot be told when the app is installed or starts.  What an agent reads is declared then, but not what it sends:
that is any `send()` in its code and in what it calls.  Sinks are declared, but Faust sends to them without a key, and
such events always go by the broker.  So a link is learned at its first send, before anything has waited on it.  Which
link of a circle closes it may differ between workers.  Each worker keeps to its choice as long as it runs, so all
events of a source topic take the same way there.
"""

from collections import defaultdict
from collections.abc import Iterable


class Circles:
    """The links between topics seen so far: an agent that reads `source` sends to the local topic `target`."""

    def __init__(self) -> None:
        self._targets: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, read_together: Iterable[str], target: str) -> bool:
        """Learn that an agent which reads these topics sends to `target`; False if that closes a circle.

        A link that closes a circle is not learned, because nothing ever waits on it.
        """
        sources = set(read_together)
        if self._reaches(target, sources):
            return False
        for source in sources:
            self._targets[source].add(target)
        return True

    def _reaches(self, begin: str, ends: set[str]) -> bool:
        seen, left = set(), [begin]
        while left:
            topic = left.pop()
            if topic in ends:
                return True
            if topic not in seen:
                seen.add(topic)
                left.extend(self._targets.get(topic, ()))
        return False
