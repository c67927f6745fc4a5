"""Prometheus metrics of the controller process: where it stands, and, while it leads, those of its control loop."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from trimtab_controller.leadership.machine import Role

PREFIX = "trimtab_controller_"


class ProcessMetrics:
    """What is served: where this process stands, and while a term runs the metrics of that term."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        text = "1 for where this controller stands; waiting = standby, another one leads."
        self._role = Gauge(PREFIX + "role", text, ["role"], registry=self.registry)
        text = "Terms that ended because another controller leads."
        self.stood_down = Counter(PREFIX + "stood_down_total", text, registry=self.registry)
        self._shown: CollectorRegistry | None = None

    def see(self, role: Role) -> None:
        """Where the controller stands now."""
        for each in Role:
            self._role.labels(each).set(each is role)

    def show(self, term: CollectorRegistry | None) -> None:
        """Serve the metrics of this run from now on; None: of none, a standby does not go on with old figures."""
        if self._shown is not None:
            self.registry.unregister(self._shown)
        self._shown = term
        if self._shown is not None:
            self.registry.register(self._shown)
