"""Prometheus metrics of the controller process: its role, and, while it leads, those of its control loop.

The port adds the label `cluster` to every series (`trimtab_process.metrics_port`).
"""

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge

from trimtab_controller.leadership.machine import CandidateRole

PREFIX = "trimtab_controller_"


class ProcessMetrics:
    """The registry that the process serves: its role and, while it leads, the metrics of its term."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        text = "1, with the version of the controller as label."
        Gauge(PREFIX + "info", text, ["version"], registry=self.registry).labels(version("trimtab")).set(1)
        text = "1 for the present role of this controller, 0 for the others; waiting = standby."
        self._role = Gauge(PREFIX + "role", text, ["role"], registry=self.registry)
        text = "Terms that ended because another controller took the lead."
        self.stood_down = Counter(PREFIX + "stood_down_total", text, registry=self.registry)
        text = "Terms that ended because their producer could not go on, for example after a topic was deleted."
        self.producers_ended = Counter(PREFIX + "producers_ended_total", text, registry=self.registry)
        self._shown: CollectorRegistry | None = None

    def see(self, role: CandidateRole) -> None:
        """Set the present role."""
        for each in CandidateRole:
            self._role.labels(each).set(each is role)

    def show(self, term: CollectorRegistry | None) -> None:
        """Serve the metrics of this term from now on; None removes them, because a standby has no current figures."""
        if self._shown is not None:
            self.registry.unregister(self._shown)
        self._shown = term
        if self._shown is not None:
            self.registry.register(self._shown)
