"""Metrics of the messages that the controller and its stream read."""

from trimtab_controller.loop.inbox import Inbox
from trimtab_controller.loop.metrics.declare import Declare
from trimtab_process.metrics_port import from_zero
from trimtab_protocol.messages.decode import Fault
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.signing.hosts import HostChecking

SIGNATURE_FAULTS = (Fault.UNSIGNED, Fault.UNKNOWN_KEY, Fault.WRONG_SIGNATURE, Fault.REPEATED)
"""What may be wrong with the signature of a host."""


class MessageMetrics:
    """What is refused, and what is not signed by its host."""

    def __init__(self, declare: Declare) -> None:
        text = "Messages refused by the controller, and reports refused by the stream, by topic and fault."
        self._rejected = declare.followed("rejected_messages_total", text, "topic", "fault")
        text = "Reports and acks that are used although their host has not signed them, by topic and fault."
        self._unsigned = declare.followed("unsigned_messages_total", text, "topic", "fault")
        text = (
            "How what a host has not signed is treated: 0 = signatures are not looked at, 1 = it is used, 2 = dropped."
        )
        self._host_checking = declare.gauge("host_checking", text)
        text = "Hosts that have a key; 0 where signatures are not looked at."
        self._hosts_enrolled = declare.gauge("hosts_enrolled", text)

    def read_from(self, topics: Topics) -> None:
        """Show that nothing of these topics is refused yet."""
        read = (topics.reports, topics.snapshots, topics.acks, topics.intents, topics.placement, topics.journal)
        from_zero(self._rejected, (*read, topics.commands), Fault)
        from_zero(self._unsigned, (topics.reports, topics.acks), SIGNATURE_FAULTS)

    def see(self, inbox: Inbox) -> None:
        """Set the counts of refused messages, and of those without a signature of their host."""
        for metric, counts in ((self._rejected, inbox.rejected), (self._unsigned, inbox.unsigned)):
            for (topic, fault), count in counts.items():
                metric.labels(topic, fault).follow(count)
        self._host_checking.set(list(HostChecking).index(inbox.checking))
        self._hosts_enrolled.set(len(inbox.known_hosts.enrolled))
