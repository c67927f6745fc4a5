"""Prometheus metrics of the agent. All names begin with `trimtab_agent_`.

The port adds the labels `cluster` and `host` to every series (`trimtab_process.metrics_port`).
"""

from collections.abc import Iterable
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge

from trimtab_process.metrics_port import Followed, from_zero
from trimtab_protocol.messages.commands import Refusal
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import WorkerId

CLOSED = ("connections", "duplicate_worker", "flood", "held", "no_hello", "unknown_worker", "unread")
"""Why the connection of a plug-in is closed, besides a bad frame."""
DROPPED = ("msg_timed_out", "queue_full")
"""Why a report is dropped while the broker is away; other reasons are rare errors of the Kafka client."""


class AgentMetrics:
    """The agent's metrics, in a registry of their own; `workers` are those in the configuration."""

    def __init__(self, workers: Iterable[WorkerId] = ()) -> None:
        self.registry = CollectorRegistry()
        self._gauge("info", "1, with the version of the agent as label.", "version").labels(version("trimtab")).set(1)
        self.reports_sent = self._counter("reports_sent", "Reports that the broker acknowledged.")
        text = "Reports dropped before the broker acknowledged them, by reason."
        self.reports_dropped = from_zero(self._counter("reports_dropped", text, "reason"), DROPPED)
        text = "1 while the agent reaches the broker and reads its commands, else 0."
        self.broker_connected = self._gauge("broker_connected", text)
        text = "Commands refused after they were read, by reason."
        self.command_refusals = from_zero(self._counter("command_refusals", text, "reason"), Refusal)
        text = "Records in the commands topic dropped as invalid, by reason."
        self.bad_commands = from_zero(self._counter("bad_commands", text, "reason"), Fault)
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
        self.state_breaches = from_zero(self._counter("worker_state_breaches", text, "worker"), workers)
        text = (
            "1 for an hour after the worker began at the first records of its topics although its tables have counted "
            "them, 0.5 if they may have counted them, else 0."
        )
        self.offsets_reset = self._gauge("worker_offsets_reset", text, "worker")
        text = (
            "1 for an hour after the worker found that inputs, or changes of its tables, were deleted before it read "
            "them, else 0."
        )
        self.records_lost = self._gauge("worker_records_lost", text, "worker")
        text = "Crashes of workers that the agent started and keeps running."
        self.worker_crashes = from_zero(self._counter("worker_crashes", text, "worker"), workers)
        text = "Workers that crashed too often, or could not be started: the agent does not start them again."
        self.workers_given_up = self._gauge("workers_given_up", text)
        text = "Frames from plug-ins dropped as invalid, by reason."
        self.bad_frames = from_zero(self._counter("bad_frames", text, "reason"), (*Fault, *CLOSED))
        self.workers_connected = self._gauge("workers_connected", "Workers connected to the agent.")
        self.workers_steering = self._gauge("workers_steering", "Connected workers that take commands.")
        self.journal_faults = self._gauge("journal_faults", "Faults found in the journal when the agent started.")

    def see_worker(self, worker: WorkerId) -> None:
        """Show that a worker that has connected refused nothing yet."""
        from_zero(self.worker_refused, (worker,), Fault)

    def forget_worker(self, worker: WorkerId) -> None:
        """Drop what a worker refused, and said of its offsets and losses, because its connection has ended."""
        for metric in (self.worker_refused, self.offsets_reset, self.records_lost):
            metric.remove_by_labels({"worker": worker})

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"trimtab_agent_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"trimtab_agent_{name}", text, labels, registry=self.registry)
