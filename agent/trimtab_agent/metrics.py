"""Prometheus metrics of the agent. All names begin with `trimtab_agent_`."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab_process.counts import Followed

PAUSE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """The agent's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reports_sent = self._counter("reports_sent", "Reports that the broker acknowledged.")
        text = "Reports dropped before the broker acknowledged them, by reason."
        self.reports_dropped = self._counter("reports_dropped", text, "reason")
        self.report_bytes = self._gauge("report_bytes", "Uncompressed size of the last report, in bytes.")
        text = "1 while the agent reaches the broker and reads its commands, else 0."
        self.broker_connected = self._gauge("broker_connected", text)
        text = "Answers to commands, by kind of command and phase."
        self.command_answers = self._counter("command_answers", text, "kind", "phase")
        text = "Commands refused after they were read, by reason."
        self.command_refusals = self._counter("command_refusals", text, "reason")
        text = "Records in the commands topic dropped as invalid, by reason."
        self.bad_commands = self._counter("bad_commands", text, "reason")
        text = "1 if the agent verifies the signatures of commands, else 0."
        self.commands_verified = self._gauge("commands_verified", text)
        text = "1 while the trust file is unusable and the agent keeps the keys it read before, else 0."
        self.trust_file_faulty = self._gauge("trust_file_faulty", text)
        self.worker_refused = Followed(
            "trimtab_agent_worker_refused_records_total",
            "Placement and hand-over records that the worker refused since its start, by reason.",
            ["worker", "reason"],
            registry=self.registry,
        )
        text = "Times that a worker ended itself because a changelog was about to overwrite its state."
        self.state_breaches = self._counter("worker_state_breaches", text, "worker")
        text = "Crashes of workers that the agent started and keeps running."
        self.worker_crashes = self._counter("worker_crashes", text, "worker")
        text = "Workers that crashed too often, or could not be started: the agent does not start them again."
        self.workers_given_up = self._gauge("workers_given_up", text)
        self.bad_frames = self._counter("bad_frames", "Frames from plug-ins dropped as invalid, by reason.", "reason")
        self.workers_connected = self._gauge("workers_connected", "Workers connected to the agent.")
        self.workers_steering = self._gauge("workers_steering", "Connected workers that take commands.")
        self.clamps = self._counter("clamps", "Readings reduced to a physical limit, by what was read.", "what")
        self.journal_faults = self._gauge("journal_faults", "Faults found in the journal when the agent started.")
        self.pause = Histogram(
            "trimtab_agent_handover_pause_seconds",
            "Processing pause of key groups during a hand-over, in seconds, measured by the new owner.",
            buckets=PAUSE_BUCKETS,
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"trimtab_agent_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"trimtab_agent_{name}", text, labels, registry=self.registry)
