"""Partition assignor that follows the placement; whoever the broker elects as the leader uses it.

It decides from what is in memory and in the members' JoinGroup data (no I/O: it runs in the consumer's thread).  Every
member sends the newest placement it has seen, so that a leader whose reader lags still uses the newest.
"""

import base64
import logging
import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from faust.assignor.client_assignment import ClientAssignment, ClientMetadata, CopartitionedAssignment
from faust.assignor.cluster_assignment import ClusterAssignment
from faust.assignor.partition_assignor import PartitionAssignor

from trimtab_agent.engines.faust.board import Board
from trimtab_agent.engines.faust.placing import Member, Reason, place
from trimtab_models.messages.decode import MAX_MESSAGE_BYTES, BadMessage, Fault, check_integer, shorten, step
from trimtab_models.messages.names import NO_EPOCH, Epoch, OperatorId
from trimtab_models.messages.placement import Owners, Placement, encode_placement
from trimtab_models.messages.report import MAX_COUNT

log = logging.getLogger(__name__)

Members = Mapping[Member, "MemberData"]


class MemberData(ClientMetadata, serializer="json", include_metadata=False, namespace="@ClientMetadata"):  # type: ignore[misc, call-arg]
    """Faust's JoinGroup and SyncGroup data with ours; stock Faust ignores what it does not know."""

    worker: str = ""
    epoch: list[int] = list(NO_EPOCH)  # noqa: RUF012 - Faust's models copy their defaults
    placement: str | None = None
    signatures: list[str] = []  # noqa: RUF012


class PlacementAssignor(PartitionAssignor):  # type: ignore[misc]
    """Assigns as the placement on the board says; without one, or on any fault, as stock Faust does."""

    def __init__(self, board: Board, app: Any, replicas: int = 0) -> None:
        super().__init__(app, replicas)
        self._board = board
        self._deciding = NO_EPOCH

    # ---- member -> leader

    def metadata(self, topics: set[str]) -> ConsumerProtocolMemberMetadata:
        """What this member sends when it joins: what it owns now, in-place changes included, and the placement.

        Faust's distribution maps stay out: no leader reads them, and they grow with members times partitions.
        """
        placement, signatures = self._board.newest or (None, ())
        data = MemberData(
            assignment=self._assignment,
            url=str(self._url),
            changelog_distribution={},
            worker=self._board.worker,
            epoch=list(placement.epoch if placement else NO_EPOCH),
            placement=_packed(placement) if placement else None,
            signatures=[signature.decode("latin-1") for signature in signatures],
        )
        return ConsumerProtocolMemberMetadata(self.version, sorted(topics), data.dumps())

    # ---- leader

    def _perform_assignment(self, cluster: Any, member_metadata: Mapping[Member, Any]) -> Any:
        self._deciding = NO_EPOCH
        members = {member: self._read(member, told, cluster) for member, told in member_metadata.items()}
        # Stock Faust, should we need it, reads only what we have understood too.
        member_metadata = {
            member: ConsumerProtocolMemberMetadata(told.version, list(told.subscription), _essence(members[member]))
            for member, told in member_metadata.items()
        }
        try:
            for data in members.values():
                self._offer(data)
            if self._board.placement is not None and self._board.layout is not None:
                return self._follow(self._board.placement, cluster, member_metadata, members)
        except Exception:  # a leader that raises makes the whole group retry for ever
            log.exception("the placement cannot be followed: assigning as stock Faust does")
            self._deciding = NO_EPOCH
        return super()._perform_assignment(cluster, member_metadata)

    def _read(self, member: Member, told: Any, cluster: Any) -> MemberData:
        """What a member says; of one that cannot be understood nothing is known, the others have their group."""
        try:
            data = read_member(told.user_data)
            for part in (data.assignment.actives, data.assignment.standbys):
                for topic, held in part.items():
                    check_held(topic, held, cluster.partitions_for_topic(topic))
        except BadMessage as error:
            self._refuse(f"data of group member {shorten(member)}", error)
            return MemberData(assignment=ClientAssignment(actives={}, standbys={}), url="", changelog_distribution={})
        return data

    def _refuse(self, what: str, error: BadMessage) -> None:
        self._board.refused[error.fault] += 1
        log.warning("%s ignored: %s", what, error)

    def _offer(self, data: MemberData) -> None:
        """Take over a member's placement if it is newer."""
        newest = self._board.placement.epoch if self._board.placement else NO_EPOCH
        try:
            if data.placement is not None and Epoch(*data.epoch) > newest:
                signatures = tuple(signature.encode("latin-1") for signature in data.signatures)
                self._board.take(_unpacked(data.placement), signatures)
        except ValueError as error:
            log.warning("placement of member %s ignored: %s", shorten(data.worker), error)

    def _follow(self, placement: Placement, cluster: Any, subscriptions: Mapping[Member, Any], members: Members) -> Any:
        state = ClusterAssignment()
        for member, data in members.items():
            state.add_client(member, list(subscriptions[member].subscription), data)
        self._update_member_urls(members)
        by_worker = {data.worker: member for member, data in members.items() if data.worker}
        assignments = {member: ClientAssignment(actives={}, standbys={}) for member in members}
        topic_groups: dict[str, int] = {}
        for number, (operator, topics, partitions) in enumerate(self._groups(cluster, state.topics())):
            topic_groups.update(dict.fromkeys(topics, number))  # unique per group
            # only members subscribed to all of them can have them
            before = state.copartitioned_assignments(topics)
            rows = placement.owners.get(operator, ()) if operator else ()
            placed = place(
                [_members(row, by_worker) for row in rows],
                partitions=partitions,
                previous={p: member for member, held in before.items() for p in held.actives},
                members=before.keys(),
            )
            for member in before:
                actives = {p for p, (owner, _) in placed.items() if owner == member}
                assignments[member].add_copartitioned_assignment(CopartitionedAssignment(actives, set(), topics))
            if operator:
                _log_exceptions(operator, placed.values())
        self._deciding = placement.epoch
        return self._protocol_assignments(
            assignments,
            self._get_changelog_distribution(assignments),
            self._get_external_topic_distribution(assignments),
            topic_groups,
        )

    def _groups(self, cluster: Any, topics: set[str]) -> Iterable[tuple[OperatorId | None, set[str], int]]:
        """Operators, then Faust's own topics (leader election, replies) one by one."""
        assert self._board.layout is not None

        def count(topic: str) -> int | None:
            return len(cluster.partitions_for_topic(topic) or ()) or None

        rest = set(topics)
        for operator in self._board.layout.operators(count):
            yield operator.id, set(operator.topics & topics), operator.partitions
            rest -= operator.topics
        for topic in sorted(rest):
            if partitions := count(topic):
                yield None, {topic}, partitions

    def _protocol_assignments(self, assignments: Any, changelogs: Any, externals: Any, topic_groups: Any) -> Any:
        """Stock's result, with the epoch that was applied."""
        return {
            member: ConsumerProtocolMemberAssignment(
                self.version,
                sorted(assignment.kafka_protocol_assignment(self._table_manager)),
                self._compress(
                    MemberData(
                        assignment=assignment,
                        url=self._member_urls[member],
                        changelog_distribution=changelogs,
                        external_topic_distribution=externals,
                        topic_groups=topic_groups,
                        epoch=list(self._deciding),
                    ).dumps()
                ),
            )
            for member, assignment in assignments.items()
        }

    # ---- leader -> member

    def on_assignment(self, assignment: Any) -> None:
        """Take what the leader gave, and note which placement it applied.

        What it says beside that may be broken: the partitions, which the broker passed on, hold even so.
        """
        try:
            data = read_member(_unzipped(assignment.user_data))
            try:
                super().on_assignment(assignment)
            except Exception as error:  # Faust asserts, and looks into what it has not checked
                raise BadMessage(Fault.MALFORMED, "assignment", shorten(error), "what belongs to it") from error
        except BadMessage as error:
            self._refuse("what the group's leader says of an assignment is", error)
            data = MemberData(
                assignment=ClientAssignment(actives=dict(assignment.assignment), standbys={}),
                url=str(self._url),
                changelog_distribution={},
            )
            given = self._compress(data.dumps())
            super().on_assignment(ConsumerProtocolMemberAssignment(assignment.version, assignment.assignment, given))
        self._board.applied = Epoch(*data.epoch)


def read_member(user_data: bytes) -> MemberData:
    """A member's data, in which every field that is looked at here has its type: Faust checks none.

    Raises BadMessage.
    """
    try:
        data: MemberData = MemberData.loads(user_data)
        held = (data.assignment.actives, data.assignment.standbys)
        Epoch(*(check_integer(part, "epoch", 0, MAX_COUNT) for part in data.epoch))
        texts = [data.url, data.worker, *data.signatures, *(topic for each in held for topic in each)]
        texts += [] if data.placement is None else [data.placement]
        sound = all(isinstance(text, str) for text in texts) and all(isinstance(each, dict) for each in held)
    except BadMessage:
        raise
    except Exception as error:  # whatever Faust's reader, and looking for what should be there, raise
        raise BadMessage(Fault.MALFORMED, "", shorten(error), "a member's data") from error
    if not sound:
        raise BadMessage(Fault.TYPE, "", user_data, "a member's data")
    return data


def _essence(data: MemberData) -> bytes:
    """What stock Faust needs of a member."""
    known = MemberData(assignment=data.assignment, url=data.url, changelog_distribution={})
    return bytes(known.dumps())


def check_held(topic: str, held: object, partitions: Collection[int] | None) -> None:
    """Raises BadMessage unless these are partitions that the topic has; None: nobody knows the topic, nor uses it."""
    if not isinstance(held, list) or not all(type(partition) is int for partition in held):
        raise BadMessage(Fault.TYPE, step(topic), held, "a list of partitions")
    if partitions and not set(held) <= set(partitions):
        raise BadMessage(Fault.RANGE, step(topic), "one that is not there", f"partitions up to {max(partitions)}")


def _members(row: Owners, by_worker: Mapping[str, Member]) -> list[Member | None]:
    return [by_worker.get(worker) for worker in row]


def _log_exceptions(operator: OperatorId, placed: Iterable[tuple[Member, Reason]]) -> None:
    reasons = [reason for _, reason in placed if reason is not Reason.PLACED]
    if reasons:
        counts = {reason.value: reasons.count(reason) for reason in Reason if reason in reasons}
        log.warning("operator %s: %d key groups are not with their placed owner: %s", operator, len(reasons), counts)


def _packed(placement: Placement) -> str:
    return base64.b64encode(zlib.compress(encode_placement(placement), 9)).decode()


def _unpacked(text: str) -> bytes:
    """The placement as it was published: its encoding has one form, which is what was signed.  Raises BadMessage."""
    try:
        return _unzipped(base64.b64decode(text))
    except ValueError as error:
        raise BadMessage(Fault.MALFORMED, "placement", text[:40], "a packed placement") from error


def _unzipped(packed: bytes) -> bytes:
    """What was compressed, no more of it than a message may have.  Raises BadMessage."""
    try:
        return zlib.decompressobj().decompress(packed, MAX_MESSAGE_BYTES)
    except zlib.error as error:
        raise BadMessage(Fault.MALFORMED, "", packed[:40], "compressed bytes") from error
