"""Partition assignor that follows the placement.  It runs on the member that the broker elects as leader.

It runs in the consumer's thread and does no I/O: it decides from memory and from the members' JoinGroup data.
Every member sends two things with its JoinGroup:

- the newest placement it has seen, so that a leader whose reader lags still uses the newest one.  Of a placement in
  parts it sends only the epoch: the leader waits until it has read it (`GroupWatcher.before_assignment`);
- the topics it reads, so that members with different versions of the app can share a group (`copartition.py`).

Members may keep what they work on while they join (`safety/in_place.py`).  The leader then gives away only the rest.
If something speaks against it, it gives nothing away: all revoke and join once more.

Faust's router asks the assignor who owns a key (`routes.py`).
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from faust.assignor.client_assignment import ClientAssignment
from faust.assignor.partition_assignor import PartitionAssignor
from yarl import URL

from trimtab_agent.engines.faust.group.copartition import CoPartitioned, co_partitioned, difference
from trimtab_agent.engines.faust.group.member_data import (
    JSON_HERE,
    MAX_DIFFERENCE,
    MemberData,
    check_held,
    essence,
    packed,
    read_layout,
    read_member,
    read_member_copies,
    unknown_member,
    unpacked,
    unzipped,
    write_copies,
    write_layout,
)
from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_agent.engines.faust.group.placing import Member, PlacingReason, place
from trimtab_agent.engines.faust.group.routes import Distribution, Routes
from trimtab_agent.engines.faust.group.shared_state import PluginState
from trimtab_agent.engines.faust.safety.in_place import COMMON, OWN
from trimtab_protocol.messages.copies import Copy
from trimtab_protocol.messages.decode import BadMessage, Fault, shorten, step
from trimtab_protocol.messages.names import NO_EPOCH, Epoch, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.wording import first_few

log = logging.getLogger(__name__)

Members = Mapping[Member, MemberData]
CHANGELOG = "-changelog"
"""Suffix of Faust's changelogs.  Identifies them in the subscription of a member that sends no layout."""
STOCK_LEADER = "the leader of the consumer group assigns as stock Faust does: it has no plug-in, or only reports"
"""Faust then follows changelogs for the standbys that it assigned.  A hand-over must not follow them as well."""


class NotInPlace(Exception):
    """Why the members of a group must revoke everything before the next assignment."""


class PlacementAssignor(PartitionAssignor):  # type: ignore[misc]
    """Assigns partitions by the placement in the shared state.

    Without a placement, or after any error, it assigns as stock Faust does.
    """

    def __init__(self, shared: PluginState, app: Any, replicas: int = 0) -> None:
        super().__init__(app, replicas)
        self._shared = shared
        self._deciding = NO_EPOCH
        self._differs: str | None = None
        self.protocol = COMMON
        """Which of its names the broker has chosen for the join under way."""
        self._in_place = self._revoke = False
        self._addresses: dict[str, str] = {}
        self.routes = shared.routes = Routes(app, self.is_active)

    # ---- routes

    def key_store(self, topic: str, key: bytes) -> URL:
        """The address of the worker that owns the key of a changelog.

        Raises KeyError if nobody can answer now, and ServiceUnavailable if nobody knows who can.
        """
        return self.routes.address(self.routes.place(topic, key, self._tps_url), self._tps_url)

    def external_key_store(self, topic: str, key: bytes) -> URL:
        """The address of the worker that reads the key of a topic.  Raises KeyError if nobody can answer now."""
        return self.routes.address(self.app.producer.key_partition(topic, key), self._external_tps_url)

    @property
    def changelog_distribution(self) -> Distribution:
        """The owners of the tables' partitions now, for Faust's web views."""
        return self.routes.distribution(self._changelog_distribution)

    @changelog_distribution.setter
    def changelog_distribution(self, told: Distribution) -> None:
        PartitionAssignor.changelog_distribution.fset(self, told)

    @property
    def external_topic_distribution(self) -> Distribution:
        """The owners of all other partitions now, for Faust's web views."""
        return self.routes.distribution(self._external_topic_distribution)

    @external_topic_distribution.setter
    def external_topic_distribution(self, told: Distribution) -> None:
        PartitionAssignor.external_topic_distribution.fset(self, told)

    # ---- member -> leader

    def metadata(
        self, topics: set[str], *, keeps: bool = False, in_place: bool = False, generation: int = -1
    ) -> ConsumerProtocolMemberMetadata:
        """JoinGroup data of this member: what it owns now (in-place changes included), what it reads, the placement.

        `keeps`: it goes on with that while it joins.  `in_place`: it can do so the next time.  `generation`: the last.
        Faust's distribution maps are left out: no leader reads them, and they grow with members times partitions.
        """
        placement, signatures = self._shared.newest or (None, ())
        layout = self._shared.layout
        data = MemberData(
            assignment=self._assignment,
            url=str(self._url),
            changelog_distribution={},
            worker=self._shared.worker,
            epoch=list(placement.epoch if placement else NO_EPOCH),
            placement=packed(placement) if placement and placement.part_size is None else None,
            signatures=[signature.decode("latin-1") for signature in signatures],
            layout=write_layout(layout) if layout else None,
            copies=write_copies(self._shared.copies),
            json=JSON_HERE,
            keeps=keeps,
            in_place=in_place,
            generation=generation,
        )
        return ConsumerProtocolMemberMetadata(self.version, sorted(topics), data.dumps())

    # ---- leader

    def _perform_assignment(self, cluster: Any, member_metadata: Mapping[Member, Any]) -> Any:
        members = {member: self._read(member, told, cluster) for member, told in member_metadata.items()}
        self._deciding, self._differs, self._revoke = NO_EPOCH, (twins := _twins(members)), False
        self._addresses = {data.worker: data.url for data in members.values() if data.worker}
        # If stock Faust has to assign instead, it must not trip over data that this assignor could not read.
        member_metadata = {
            member: ConsumerProtocolMemberMetadata(told.version, list(told.subscription), essence(members[member]))
            for member, told in member_metadata.items()
        }
        keepers = [member for member, data in members.items() if data.keeps and any(data.assignment.actives.values())]
        try:
            for data in members.values():
                self._offer(data)
            reason = self._against_in_place(members)
            if reason is not None and (keepers or (self.protocol == OWN and not all(map(_readable, members.values())))):
                return self._let_revoke(members, reason)
            self._in_place = reason is None
            steers = self._shared.refusal is None and self._shared.layout is not None
            if steers and self._shared.placement is not None:
                subscriptions = {member: frozenset(told.subscription) for member, told in member_metadata.items()}
                return self._follow(self._shared.placement, cluster, subscriptions, members)
            if steers and _newest_in_parts(members) > NO_EPOCH:
                # The members follow a placement that this leader could not read: nothing moves.
                nothing = Placement(cluster=self._shared.cluster, app=self._shared.app, epoch=NO_EPOCH, owners={})
                subscriptions = {member: frozenset(told.subscription) for member, told in member_metadata.items()}
                return self._follow(nothing, cluster, subscriptions, members)
        except Exception as error:  # a leader that raises makes the whole group retry for ever
            self._in_place = False
            if keepers:
                return self._let_revoke(members, str(error) if isinstance(error, NotInPlace) else repr(error))
            log.exception("the placement cannot be followed; falling back to Faust's own assignment")
            self._deciding, self._differs = NO_EPOCH, twins
        return super()._perform_assignment(cluster, member_metadata)

    def _against_in_place(self, members: Members) -> str | None:
        """Why members must not keep what they have while they join; None = they may."""
        if self._shared.refusal is not None or self._shared.layout is None:
            return "the leader of the group only reports"
        if self._shared.placement is None:
            return "there is no placement"
        if self._differs is not None:
            return self._differs
        if not all(map(_readable, members.values())):
            return "the data of a member cannot be read"
        if asks := sorted(data.worker for data in members.values() if not data.in_place):
            return f"{first_few(asks)} asks for it"
        return None

    def _let_revoke(self, members: Members, reason: str) -> Any:
        """Give every member what it claims and nobody anything else; all revoke then, and join again."""
        log.warning("all workers stop for this rebalance: %s", reason)
        self._in_place, self._revoke, self._deciding = False, True, NO_EPOCH
        self._update_member_urls(members)
        claims = {
            member: ClientAssignment(actives=dict(data.assignment.actives) if data.keeps else {}, standbys={})
            for member, data in members.items()
        }
        return self._protocol_assignments(claims, {}, {}, {})

    def _read(self, member: Member, told: Any, cluster: Any) -> MemberData:
        """Decode one member's data.  A member with unreadable data counts as unknown; the others are unaffected."""
        try:
            data = read_member(told.user_data)
            for part in (data.assignment.actives, data.assignment.standbys):
                for topic, held in part.items():
                    check_held(topic, held, cluster.partitions_for_topic(topic))
        except BadMessage as error:
            self._refuse(f"data of group member {shorten(member)}", error)
            return unknown_member()
        return data

    def _refuse(self, what: str, error: BadMessage) -> None:
        self._shared.refused[error.fault] += 1
        log.warning("%s ignored: %s", what, error)

    def _offer(self, data: MemberData) -> None:
        """Adopt a member's placement if it is newer."""
        newest = self._shared.placement.epoch if self._shared.placement else NO_EPOCH
        try:
            if data.placement is not None and Epoch(*data.epoch) > newest:
                signatures = tuple(signature.encode("latin-1") for signature in data.signatures)
                self._shared.take(unpacked(data.placement), signatures)
        except ValueError as error:
            log.warning("placement of member %s ignored: %s", shorten(data.worker), error)

    def _follow(
        self, placement: Placement, cluster: Any, subscriptions: Mapping[Member, frozenset[str]], members: Members
    ) -> Any:
        def count(topic: str) -> int | None:
            return len(cluster.partitions_for_topic(topic) or ()) or None

        self._update_member_urls(members)
        layouts = {member: self._layout_of(data, subscriptions[member]) for member, data in members.items()}
        self._differs = self._differs or self._difference(layouts, members)
        if self._differs is not None:
            self._in_place = False
            if any(data.keeps for data in members.values()):
                raise NotInPlace(self._differs)
        assignments = {member: ClientAssignment(actives={}, standbys={}) for member in members}
        topic_groups: dict[str, int] = {}
        by_worker = {data.worker: member for member, data in members.items() if data.worker}
        copies = {member: self._copies_of(data) for member, data in members.items()}
        newest, applied = _newest_in_parts(members), True
        if lags := newest > placement.epoch:
            log.warning("placement %s could not be read in time: key groups stay with their owners", newest)
        for number, group in enumerate(self._groups(layouts, subscriptions, count)):
            topic_groups.update(dict.fromkeys(group.topics, number))  # unique per group
            if not group.members:
                log.error(
                    "%s stays unassigned: the broker does not know one of its changelogs yet",
                    ", ".join(sorted(group.topics)),
                )
                continue
            wanted, claims = [_members(row, by_worker) for row in _rows(placement, group)], _claims(group, members)
            applied = applied and all(_first(wanted[at]) in (None, member) for at, member in claims.items())
            placed = place(
                wanted,
                partitions=group.partitions,
                previous=_previous(group, members),
                members=group.members,
                copies=_copies(group, copies),
                claims=claims,
                stay=lags,
            )
            for member in group.members:
                owned = sorted(partition for partition, (owner, _) in placed.items() if owner == member)
                for topic in group.topics & subscriptions[member]:
                    assignments[member].actives[topic] = list(owned)
            if group.operators:
                _log_exceptions(group, placed.values())
        self._deciding = placement.epoch if applied else NO_EPOCH
        return self._protocol_assignments(
            assignments,
            self._get_changelog_distribution(assignments),
            self._get_external_topic_distribution(assignments),
            topic_groups,
        )

    def _layout_of(self, data: MemberData, subscription: frozenset[str]) -> Layout:
        """The topics that a member reads.

        If it sent no layout (an older plug-in or stock Faust), it is assumed to name operators as this worker does.
        """
        try:
            if data.layout is not None:
                return read_layout(data.layout)
        except BadMessage as error:
            self._refuse(f"layout of member {shorten(data.worker)}", error)
        ours = self._shared.layout
        assert ours is not None
        topics = frozenset(topic for topic in subscription if not self._is_fausts_own(topic))
        unknown = topics - ours.sources - ours.changelogs
        changelogs = (topics & ours.changelogs) | {topic for topic in unknown if topic.endswith(CHANGELOG)}
        return Layout(
            named={operator: named & topics for operator, named in ours.named.items() if named & topics},
            sources=topics - changelogs,
            changelogs=changelogs,
        )

    def _copies_of(self, data: MemberData) -> tuple[Copy, ...]:
        """The copies of a member; none if they cannot be read, since they only save time."""
        try:
            return read_member_copies(data.copies)
        except BadMessage as error:
            self._refuse(f"copies of member {shorten(data.worker)}", error)
            return ()

    def _is_fausts_own(self, topic: str) -> bool:
        leader_topic: str = self.app._leader_assignor._leader_topic_name
        return topic == leader_topic or topic.startswith(self.app.conf.reply_to_prefix)

    def _difference(self, layouts: Mapping[Member, Layout], members: Members) -> str | None:
        names = {member: step(data.worker) for member, data in members.items() if data.worker}
        found = difference(layouts, names, {member: data.json or JSON_HERE for member, data in members.items()})
        if found is not None:
            log.warning("no hand-overs until all workers run the same version of the app: %s", found)
        return found and found[:MAX_DIFFERENCE]

    def _groups(
        self,
        layouts: Mapping[Member, Layout],
        subscriptions: Mapping[Member, frozenset[str]],
        count: Callable[[str], int | None],
    ) -> Iterable[CoPartitioned]:
        """The members' co-partitioned groups, then each of Faust's own topics (leader election, replies) alone."""
        groups = co_partitioned(layouts, count)
        yield from groups
        of_members = frozenset[str]().union(*(each.sources | each.changelogs for each in layouts.values()))
        for topic in sorted(frozenset[str]().union(*subscriptions.values()) - of_members):
            if partitions := count(topic):
                readers = frozenset(member for member, topics in subscriptions.items() if topic in topics)
                yield CoPartitioned(operators=(), topics=frozenset({topic}), partitions=partitions, members=readers)

    def _protocol_assignments(self, assignments: Any, changelogs: Any, externals: Any, topic_groups: Any) -> Any:
        """Stock Faust's result, plus the applied epoch, how the members differ, and their addresses."""
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
                        differs=self._differs,
                        in_place=self._in_place,
                        revoke=self._revoke,
                        addresses=self._addresses,
                    ).dumps()
                ),
            )
            for member, assignment in assignments.items()
        }

    # ---- leader -> member

    @staticmethod
    def leader_says(assignment: Any) -> tuple[bool, bool]:
        """Whether members keep what they own at the next join, and whether they must revoke it and join at once."""
        try:
            data = read_member(unzipped(assignment.user_data))
        except BadMessage:
            return False, False
        return data.in_place, data.revoke

    def on_assignment(self, assignment: Any) -> None:
        """Adopt the leader's assignment and note which placement it applied.

        If the leader's extra data is malformed, the assigned partitions still hold: the broker passed them on.
        """
        try:
            data = read_member(unzipped(assignment.user_data))
            try:
                super().on_assignment(assignment)
            except Exception as error:  # Faust asserts, and uses fields that it has not checked
                raise BadMessage(Fault.MALFORMED, "assignment", shorten(error), "what belongs to it") from error
        except BadMessage as error:
            self._refuse("the group leader's data of an assignment", error)
            data = MemberData(
                assignment=ClientAssignment(actives=dict(assignment.assignment), standbys={}),
                url=str(self._url),
                changelog_distribution={},
            )
            given = self._compress(data.dumps())
            super().on_assignment(ConsumerProtocolMemberAssignment(assignment.version, assignment.assignment, given))
        self.routes.addresses = {WorkerId(worker): address for worker, address in data.addresses.items()}
        self._shared.applied = Epoch(*data.epoch)
        self._shared.differs = data.differs and data.differs[:MAX_DIFFERENCE]
        if any(self._assignment.standbys.values()):
            self._shared.differs = self._shared.differs or STOCK_LEADER


def _twins(members: Members) -> str | None:
    """What to tell of several members with one worker name; None if each has its own.

    A hand-over names its target by this name, so all of them would take the key group over.
    """
    counts = Counter(data.worker for data in members.values() if data.worker)
    twice = sorted(step(worker) for worker, count in counts.items() if count > 1)
    if not twice:
        return None
    found = f"several processes are called {first_few(twice)}: each needs a name of its own (TRIMTAB_WORKER)"
    log.warning("no hand-overs while %s", found)
    return found[:MAX_DIFFERENCE]


def _newest_in_parts(members: Members) -> Epoch:
    """The newest placement that a member has read and does not send along; NO_EPOCH if there is none."""
    return max((Epoch(*data.epoch) for data in members.values() if data.placement is None), default=NO_EPOCH)


def _readable(data: MemberData) -> bool:
    """Whether a member's data could be read, and is that of a plug-in."""
    return data.worker != ""


def _claims(group: CoPartitioned, members: Members) -> dict[int, Member]:
    """For each partition number, the member that works on any of the group's topics while it joins.

    Raises NotInPlace if there are two.
    """
    claims: dict[int, Member] = {}
    for member in sorted(members):
        actives = members[member].assignment.actives if members[member].keeps else {}
        for topic in group.topics & actives.keys():
            for partition in actives[topic]:
                if claims.setdefault(partition, member) != member:
                    raise NotInPlace(f"two workers claim partition {partition} of {topic}")
    return claims


def _rows(placement: Placement, group: CoPartitioned) -> list[Owners]:
    """The placement's row of each partition.  If the operator has several names, the first one with a row counts."""
    found = [placement.owners.get(operator, ()) for operator in group.operators]
    return [
        next((rows[partition] for rows in found if partition < len(rows)), ()) for partition in range(group.partitions)
    ]


def _previous(group: CoPartitioned, members: Members) -> dict[int, Member]:
    """For each partition number, the member that now owns most of the group's topics."""
    held: defaultdict[int, Counter[Member]] = defaultdict(Counter)
    for member in sorted(members):
        actives = members[member].assignment.actives
        for topic in group.topics & actives.keys():
            for partition in actives[topic]:
                held[partition][member] += 1
    return {partition: counts.most_common(1)[0][0] for partition, counts in held.items()}


def _copies(group: CoPartitioned, copies: Mapping[Member, Sequence[Copy]]) -> dict[int, dict[Member, int]]:
    """For each partition number, the members with a copy of its state, and the records that it has."""
    found: defaultdict[int, dict[Member, int]] = defaultdict(dict)
    for member in sorted(group.members):
        for copy in copies[member]:
            if copy.operator in group.operators:
                found[copy.partition][member] = copy.records
    return found


def _members(row: Owners, by_worker: Mapping[str, Member]) -> list[Member | None]:
    return [by_worker.get(worker) for worker in row]


def _first(row: Sequence[Member | None]) -> Member | None:
    """The owner that the placement names, if it is a member."""
    return row[0] if row else None


def _log_exceptions(group: CoPartitioned, placed: Iterable[tuple[Member, PlacingReason]]) -> None:
    reasons = [reason for _, reason in placed if reason is not PlacingReason.PLACED]
    if reasons:
        counts = {reason.value: reasons.count(reason) for reason in PlacingReason if reason in reasons}
        name = ", ".join(group.operators)
        log.warning("operator %s: %d key groups are not with their placed owner: %s", name, len(reasons), counts)
