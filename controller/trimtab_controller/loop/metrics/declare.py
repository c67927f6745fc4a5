"""Declares metrics.  All names begin with `trimtab_controller_`."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab_process.metrics_port import Followed

PREFIX = "trimtab_controller_"
SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Declare:
    """Declares metrics in one registry, by a name without the prefix, a text and the names of the labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.of_apps: list[Counter | Gauge] = []  # those with the label `app`

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """What this process counts."""
        made = Counter(PREFIX + name, text, labels, registry=self._registry)
        self.of_apps += [made] if "app" in labels else []
        return made

    def followed(self, name: str, text: str, *labels: str) -> Followed:
        """A count that others keep."""
        return Followed(PREFIX + name, text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """A value that goes up and down."""
        made = Gauge(PREFIX + name, text, labels, registry=self._registry)
        self.of_apps += [made] if "app" in labels else []
        return made

    def seconds(self, name: str, text: str, *labels: str) -> Histogram:
        """A histogram of durations in seconds."""
        return Histogram(PREFIX + name, text, labels, buckets=SECONDS, registry=self._registry)
