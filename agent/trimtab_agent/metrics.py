"""The agent's own figures, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab_process.counts import Followed

PAUSE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """One instance per agent, with a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reports_sent = self._counter("reports_sent", "Reports that the broker has stored")
        self.reports_dropped = self._counter("reports_dropped", "Reports given up", "reason")
        self.report_bytes = self._gauge("report_bytes", "Size of the last report, not compressed")
        self.broker_connected = self._gauge("broker_connected", "1 when the broker is there and commands are read")
        self.command_answers = self._counter("command_answers", "Answers to commands", "kind", "phase")
        self.command_refusals = self._counter("command_refusals", "Refused commands", "reason")
        self.bad_commands = self._counter("bad_commands", "Records among the commands that were dropped", "reason")
        self.commands_verified = self._gauge("commands_verified", "1 when only commands of trusted keys are obeyed")
        self.trust_file_faulty = self._gauge(
            "trust_file_faulty", "1 while the trust file cannot be used, and the keys that it had before hold"
        )
        self.worker_refused = Followed(
            "trimtab_agent_worker_refused_records_total",
            "Placements and hand-overs that a worker has refused since it was started",
            ["worker", "reason"],
            registry=self.registry,
        )
        self.state_breaches = self._counter(
            "worker_state_breaches",
            "Workers that ended because a changelog was about to overwrite their state",
            "worker",
        )
        self.bad_frames = self._counter("bad_frames", "Frames of plug-ins that were dropped", "reason")
        self.workers_connected = self._gauge("workers_connected", "Workers connected to the agent")
        self.workers_steering = self._gauge("workers_steering", "Connected workers that take commands")
        self.clamps = self._counter("clamps", "Readings cut to their physical limit", "what")
        self.journal_faults = self._gauge("journal_faults", "What was wrong with the journal at the start")
        self.pause = Histogram(
            "trimtab_agent_handover_pause_seconds",
            "Pause of key groups taken over, as their new owner measured it",
            buckets=PAUSE_BUCKETS,
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"trimtab_agent_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"trimtab_agent_{name}", text, labels, registry=self.registry)
