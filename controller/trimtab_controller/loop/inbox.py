"""Turns messages into events.  Invalid and implausible messages are dropped, and counted by topic and fault."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from confluent_kafka import Message

from trimtab_controller.decider.events import CLOCK_TOLERANCE_S, HostsRevoked, IntentsChanged, SnapshotArrived
from trimtab_controller.execution.events import AckSeen
from trimtab_controller.execution.journal import KEY as JOURNAL_KEY
from trimtab_controller.execution.journal import JournalEntry, decode_entry
from trimtab_controller.kafka.chunks import Reassembler, read_chunk
from trimtab_controller.kafka.host_keys import take_all, take_keys
from trimtab_controller.kafka.placements import PublishedPlacements
from trimtab_controller.kafka.reader import envelope_of
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.commands import UNVERIFIED, Ack
from trimtab_protocol.messages.decode import BadMessage, Fault
from trimtab_protocol.messages.host_keys import REQUEST_HEADER
from trimtab_protocol.messages.intents import Intent, TakenBack, decode_intent, taken_back_in
from trimtab_protocol.messages.names import HostId, Topics
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import is_part
from trimtab_protocol.messages.rate_limit import RateLimits, is_told
from trimtab_protocol.messages.refused_hosts import RefusedHost, RefusedHosts, RefusedTally, host_named
from trimtab_protocol.signing.envelope import headers_in, signatures_in
from trimtab_protocol.signing.hosts import HostChecking, Signed, digest_of
from trimtab_protocol.signing.keys import TrustedKeys
from trimtab_protocol.signing.known_hosts import KnownHosts

log = logging.getLogger(__name__)

ACKS_PER_S, ACKS_AT_ONCE = 500, 10_000
"""Rate and burst of acks from one host, and from all unknown hosts together, since a sender can invent host names.

A command has three acks at most, so only a flood reaches these limits."""
MAX_HOSTS = 100_000
"""Number of hosts whose acks are counted separately."""
MAX_INTENTS = 10_000
"""Maximum number of operators' intents."""

Received = SnapshotArrived | AckSeen | IntentsChanged | HostsRevoked | Placement | JournalEntry
T = TypeVar("T")


class Inbox:
    """Reads the messages of one cluster.

    `rejected`: number of refused messages by (topic, fault), those refused by the stream included.  `trusted`: the keys
    that may sign placements; None: placements are not verified.  `checking`: what becomes of acks that their host has
    not signed; it needs `trusted`, the keys that sign those of the hosts.  `unsigned`: number of reports and acks that
    are used although they have no good signature of their host, by (topic, fault).
    """

    def __init__(
        self,
        topics: Topics,
        clock: Callable[[], float] = time.time,
        *,
        trusted: TrustedKeys | None = None,
        checking: HostChecking = HostChecking.OFF,
    ) -> None:
        self._topics = topics
        self.checking = checking
        self.known_hosts = KnownHosts(topics.cluster)
        self._trusted = trusted
        self._clock = clock
        self._intents: dict[bytes, Intent] = {}
        self._hosts: frozenset[bytes] = frozenset()
        self._acks = RateLimits(rate=ACKS_PER_S, burst=ACKS_AT_ONCE, most=MAX_HOSTS)
        self._snapshots = Reassembler(topics.cluster)
        self._readers: dict[str, Callable[[Message], Received | None]] = {
            topics.snapshots: self._read_snapshot,
            topics.acks: self._read_ack,
            topics.intents: self._read_intent,
            topics.placement: self._read_placement,
            topics.journal: self._read_journal,
            topics.keys: self._read_keys,
        }
        self.placements = PublishedPlacements(topics.cluster)
        """The placements that were read; only a dry run reads them after its start."""
        self.rejected: Counter[tuple[str, Fault]] = Counter()
        self.unsigned: Counter[tuple[str, Fault]] = Counter()
        self.doubted: Mapping[HostId, str] = {}
        """Hosts in whose name reports without a good signature came in the last window, and what is wrong with it."""
        self._refused_reports = RefusedHosts()
        self._refused_acks = RefusedTally()

    @property
    def refused_hosts(self) -> RefusedHosts:
        """In whose name reports and acks came that were refused."""
        return self._refused_reports.joined(self._refused_acks.found)

    @property
    def revoked(self) -> HostsRevoked:
        """The hosts whose word does not count any more."""
        enforces = self.checking is HostChecking.ENFORCE
        return HostsRevoked(hosts=frozenset(self.known_hosts.revoked if enforces else ()))

    def know(self, hosts: Iterable[HostId]) -> None:
        """Set the known hosts; each snapshot does so too."""
        self._hosts = frozenset(host.encode() for host in hosts)

    def take(self, message: Message) -> Received | None:
        """The event in a message; None if there is none, or if the message was refused."""
        topic = message.topic()
        try:
            return self._readers[topic](message)
        except BadMessage as error:
            self.reject(topic, error)
            if topic == self._topics.acks:
                self._note(message.key() or b"", error.fault)
            return None

    def _note(self, key: bytes, fault: Fault) -> None:
        """Count a refused ack by the host in whose name it came, if that is a name."""
        if (host := host_named(key)) is not None:
            topic, now = self._topics.acks, self._clock()
            self._refused_acks.add(RefusedHost(topic=topic, host=host, fault=fault, messages=1, at=now))

    def vouches(self, message: Message) -> bool:
        """Whether a trusted key signed the message; one without a trusted signature is counted as rejected."""
        try:
            self._check_signature(message)
        except BadMessage as error:
            self.reject(message.topic(), error)
            return False
        return True

    def reject(self, topic: str, error: BadMessage) -> None:
        """Count a fault, and log it unless there are too many."""
        self.rejected[topic, error.fault] += 1
        count = self.rejected[topic, error.fault]
        if is_told(count):
            log.warning("refused message %d of this kind on %s: %s: %s", count, topic, error.fault, error)

    def _read_snapshot(self, message: Message) -> SnapshotArrived | None:
        chunk = read_chunk(headers_in(message), message.value())
        # Checked before reassembly: a window from the future would shut out all later ones.
        self._check_time(chunk.end_ms / 1000.0, "headers.end_ms")
        snapshot = self._snapshots.add(chunk)
        if snapshot is None:
            return None
        self._check_time(snapshot.end_ms / 1000.0, "end_ms")
        self.know(each.host for each in snapshot.hosts)
        for fault in Fault:  # the stream's counts since its start
            if count := snapshot.rejected.get(fault):
                self.rejected[self._topics.reports, fault] = count
            if count := snapshot.unsigned.get(fault):
                self.unsigned[self._topics.reports, fault] = count
        self.doubted = snapshot.doubted
        self._refused_reports = snapshot.refused
        return SnapshotArrived(snapshot=snapshot)

    def _read_ack(self, message: Message) -> AckSeen | None:
        key, value = message.key() or b"", message.value() or b""
        if any(name == REQUEST_HEADER for name, _ in headers_in(message)):
            return None  # a host asks to be enrolled: `trimtab keys enroll` reads that
        fault = self._host_fault(message)
        drops = fault is not None and self.checking is HostChecking.ENFORCE
        # Before it is read: that costs.  What is not the host's own does not use up what the host may send.
        if not self._acks.spend(key if key in self._hosts and not drops else b"", self._clock()):
            most = f"at most {ACKS_PER_S} acks per second of one host, and of all that are in no snapshot"
            raise BadMessage(Fault.FLOODING, "key", key, most)
        if fault is not None and drops:
            raise BadMessage(fault, "headers", key, "a signature by a key of this host")
        if fault is not None:
            self.unsigned[self._topics.acks, fault] += 1
        ack = decoded(value, Ack)
        self._check_cluster(ack.cluster)
        self._check_time(ack.at, "at")
        if ack.host.encode() != key:
            raise BadMessage(Fault.RANGE, "host", ack.host, f"{key!r}, the record's key"[:100])
        if ack.refusal in UNVERIFIED:  # no answer to a command: the agent found a record that it does not trust
            where = f"{ack.host}: {ack.kind} {ack.epoch} for {ack.worker}"
            expected = "a signature of a key that this host trusts"
            self.reject(self._topics.commands, BadMessage(Fault(ack.refusal), "headers", where, expected))
            return None
        return AckSeen(ack=ack)

    def _host_fault(self, message: Message) -> Fault | None:
        """What is wrong with the host's signature; None if nothing is, or if nobody looks at it."""
        if self.checking is HostChecking.OFF:
            return None
        digest, signatures = digest_of(message.value() or b""), signatures_in(headers_in(message))
        return self.known_hosts.fault(
            message.topic(), Signed(key=message.key() or b"", digest=digest, signatures=signatures)
        )

    def _read_keys(self, message: Message) -> HostsRevoked:
        assert self._trusted is not None, "the keys of hosts are read only where the controller has a key"
        take_keys(self.known_hosts, self._trusted, message)
        return self.revoked

    def _read_intent(self, message: Message) -> IntentsChanged:
        key, value = message.key(), message.value()
        if key is None:
            raise BadMessage(Fault.MISSING, "key", None, "the intent's key")
        taken_back = {}
        if value is None:
            self._intents.pop(key, None)
            if (word := self._taken_back(message)) is not None:
                taken_back[key.decode(errors="replace")] = word
        else:
            intent = decode_intent(key, value)  # its time is not checked: a pause from a fast clock is still a pause
            if key not in self._intents and len(self._intents) >= MAX_INTENTS:
                raise BadMessage(Fault.OVERSIZED, "key", key, f"at most {MAX_INTENTS} intents")
            self._intents[key] = intent
        return IntentsChanged(intents=tuple(self._intents.values()), taken_back=taken_back)

    def _taken_back(self, message: Message) -> TakenBack | None:
        """Who has taken an intent back.  It is taken back also if nobody can read who has."""
        try:
            return taken_back_in(headers_in(message))
        except BadMessage as error:
            self.reject(message.topic(), error)
            return None

    def take_keys(self, messages: Iterable[Message]) -> None:
        """Note the keys of hosts, from the beginning of their topic on."""
        if self._trusted is not None:
            for error in take_all(self.known_hosts, self._trusted, messages).values():
                self.reject(self._topics.keys, error)

    def take_placement(self, message: Message) -> None:
        """Note a record of the placements' topic.  What is refused is counted."""
        if message.value() is None and is_part(message.key()):
            return  # a part that its placement no longer has: the head says so
        if self.vouches(message):
            with suppress(BadMessage):  # noted as a flaw, for which the controller holds
                self.placements.take(message)

    def _read_placement(self, message: Message) -> Placement | None:
        if message.value() is None and is_part(message.key()):
            return None
        self._check_signature(message)
        return self.placements.follow(message)

    def _read_journal(self, message: Message) -> JournalEntry | None:
        return decode_entry(message.value()) if message.key() == JOURNAL_KEY else None

    def _check_signature(self, message: Message) -> None:
        if self._trusted is not None:
            self._trusted.check(envelope_of(message))

    def _check_cluster(self, cluster: str) -> None:
        if cluster != self._topics.cluster:
            raise BadMessage(Fault.CLUSTER, "cluster", cluster, self._topics.cluster)

    def _check_time(self, at: float, path: str) -> None:
        now = self._clock()
        if at > now + CLOCK_TOLERANCE_S:
            raise BadMessage(Fault.FUTURE, path, at, f"at most {now + CLOCK_TOLERANCE_S:.0f}")
