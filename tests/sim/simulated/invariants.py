"""What must hold after every step and at the end: read from what is stored and from the ledger, not from the product.

The checker knows the messages' decoders and nothing else of the product.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.sim.simulated.broker import Stored
from tests.sim.simulated.budgeted import BudgetCheck, in_window
from tests.sim.simulated.copies import CALM_S, CopyCheck, changed_rows
from tests.sim.simulated.ledger import Ledger, Violation
from tests.sim.simulated.operator import NOT_FOR_BALANCE, Operator
from tests.sim.simulated.ruled import RuleCheck
from tests.sim.simulated.timeline import Timeline
from tests.sim.simulated.zoned import ZoneCheck
from trimtab_agent.commands.events import Admitted
from trimtab_controller.execution.journal import KEY as JOURNAL_KEY
from trimtab_controller.execution.journal import decode_entry
from trimtab_controller.execution.state import ENDED, IN_FLIGHT, Execution, HandoverPhase, Round
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.commands import Ack, Command, Phase
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.handover import HandoverKind, HandoverRecord
from trimtab_protocol.messages.names import NO_EPOCH, AppId, CommandId, Epoch, HostId, KeyGroup, Topics, WorkerId
from trimtab_protocol.messages.owner_rows import OwnerPart, Owners, OwnerTable
from trimtab_protocol.messages.placement import Placement
from trimtab_protocol.messages.placement_parts import PlacementHead, PlacementPart, decode_record, digest_of, part_key

UNOWNED_LIMIT_S = 45.0
"""So long may a key group be without an owner while nothing fails: a session, a rebalance, a hand-over not taken."""
ANSWER_LIMIT_S = 30.0
"""So long after a command's deadline its agent may be silent, when it is there and heard."""

BY_RULE = "key groups may not be where they are"
"""What stands in the reason of a plan that does what rules want."""
PLANS_TO_A_FULL_WORKER = 3
"""So many plans in a row must not give key groups to a worker that is over its capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the configuration promises."""

    max_migrations: int
    handovers_in_flight: int
    key_groups_per_handover: int
    load_distance: float


@dataclass(slots=True)
class Checker:
    """Told of every publication (`see`) and every admission; `look` once per second of fake time."""

    cluster: str
    bounds: Bounds
    timeline: Timeline
    ledger: Ledger
    disturbed_at: float = 0.0
    """When anything last failed, or was healed."""
    rules: RuleCheck = field(default_factory=RuleCheck)
    budget: BudgetCheck = field(default_factory=BudgetCheck)
    zones: ZoneCheck = field(default_factory=ZoneCheck)
    copies: CopyCheck = field(default_factory=CopyCheck)
    windowed: bool = False
    """Whether plans for balance begin in windows only."""
    in_windows: int = 0
    """Such plans."""
    lost_hosts_share: float = 0.0
    """Of the hosts of the last minutes, how many have been silent for long enough that a controller knows."""
    hold_since: float | None = None
    pauses_read: bool = False
    """Whether the acting controller has read that it is to pause."""
    plans: list[tuple[float, str]] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    """Plans that name next owners for what a lost worker had."""
    operator: Operator | None = None
    """Who has to approve plans, if anybody."""
    on_plan: Callable[[], None] = lambda: None
    on_journal: Callable[[Execution, Execution | None], None] = lambda now, before: None
    """Told of each entry of the journal, and of the one before."""
    over_capacity: Callable[[], set[WorkerId]] = set
    """The workers whose processes use more than they may, by the truth."""
    given: dict[WorkerId, int] = field(default_factory=dict)
    """How many plans in a row have given key groups to workers that are over their capacity."""
    commands: dict[CommandId, Command] = field(default_factory=dict)
    answers: dict[CommandId, list[Ack]] = field(default_factory=dict)
    moved: int = 0
    _writer: int = 0
    _terms: dict[int, int | None] = field(default_factory=dict)
    execution: Execution | None = None
    """The journal's last entry."""
    _parts: dict[bytes, OwnerPart] = field(default_factory=dict)
    _published: dict[tuple[AppId, Epoch], Placement] = field(default_factory=dict)
    _excused: set[CommandId] = field(default_factory=set)
    _placements: dict[AppId, Placement] = field(default_factory=dict)
    _ended_plans: set[str] = field(default_factory=set)
    _ended_handovers: set[str] = field(default_factory=set)
    _accepted: dict[HostId, Epoch] = field(default_factory=dict)
    _admitted: set[tuple[HostId, CommandId]] = field(default_factory=set)
    _released: set[tuple[str, int, KeyGroup]] = field(default_factory=set)

    # --- publications

    def see(self, records: tuple[Stored, ...]) -> None:
        """One publication, whole."""
        topics = Topics(self.cluster)
        by_topic: dict[str, list[Stored]] = {}
        for record in records:
            if record.topic in (topics.commands, topics.placement) and record.producer is None:
                continue  # an intruder's
            if record.producer is not None:
                self._see_writer(record.producer)
            by_topic.setdefault(record.topic, []).append(record)
        placements = list(self._placements_in(by_topic.get(topics.placement, ())))
        for record in by_topic.get(topics.journal, ()):
            if record.key == JOURNAL_KEY:
                self._see_journal(record, placements)
        for record in by_topic.get(topics.commands, ()):
            self._see_command(decoded(record.value, Command))
        for placement in placements:
            self._see_placement(placement)
        for record in by_topic.get(topics.acks, ()):
            ack = decoded(record.value, Ack)
            self.answers.setdefault(ack.command_id, []).append(ack)
        for record in by_topic.get(topics.handover, ()):
            self._see_handover(record)

    def _placements_in(self, records: Iterable[Stored]) -> Iterable[Placement]:
        """The placements of one publication, whole: what it leaves out is as it was."""
        for record in records:
            if record.value is None:
                self._parts.pop(record.key, None)
                continue
            found = decode_record(record.key, record.value)
            if isinstance(found, PlacementPart):
                self._parts[record.key] = OwnerPart(found.rows)
            elif isinstance(found, Placement):
                yield found
            else:
                yield self._whole(found)

    def _whole(self, head: PlacementHead) -> Placement:
        size, owners = head.part_size, {}
        for operator, count in head.key_groups.items():
            keys = [part_key(head.app, operator, part) for part in range(-(-count // size))]
            parts = [self._parts.get(key, OwnerPart(())) for key in keys]
            rows = sum(len(part.rows) for part in parts)
            if rows != count or any(len(part.rows) != size for part in parts[:-1]):
                raise Violation(f"placement {head.epoch} has {count} key groups of {operator}, its parts have {rows}")
            owners[operator] = OwnerTable(parts, size)
        found = Placement(cluster=head.cluster, app=head.app, epoch=head.epoch, owners=owners, part_size=size)
        if digest_of(found.owners) != head.digest:
            raise Violation(f"placement {head.epoch} is published without a part that its head means")
        return found

    def _see_writer(self, producer: int) -> None:
        if producer < self._writer:
            raise Violation(f"deposed: the leader of take-over {producer} writes after that of {self._writer}")
        self._writer = producer

    def _see_journal(self, record: Stored, placements: list[Placement]) -> None:
        try:
            execution = decode_entry(record.value).execution
        except BadMessage as error:
            raise Violation(f"the journal cannot be restored: {error}") from error
        before = self.execution
        if self._terms.setdefault(execution.generation, record.producer) != record.producer:
            raise Violation(f"two leaders under generation {execution.generation}")
        if before is not None and execution.epoch <= before.epoch:
            raise Violation(f"epochs: the journal goes from {before.epoch} to {execution.epoch}")
        self.execution = execution
        self.on_journal(execution, before)
        apps = {placement.app for placement in placements} | self._placements.keys()
        for app, row in execution.rounds.items():
            if execution.busy(app) and app not in apps:
                raise Violation("the journal cannot be restored: a plan in flight, and no placement of its app")
            if before is None or app not in before.rounds or before.rounds[app].plan != row.plan:
                self._see_begin(row, before)
            self._see_round(row)

    def _see_begin(self, row: Round, before: Execution | None) -> None:
        if before is not None and before.busy(row.app):
            raise Violation(f"plan {row.plan} begins while another one of its app is in flight")
        if row.plan in self._ended_plans:
            raise Violation(f"plan {row.plan} begins a second time")
        if self.pauses_read:
            raise Violation(f"plan {row.plan} begins although the controller is paused")
        if self.hold_since is not None:
            share = f"{self.lost_hosts_share:.0%}"
            raise Violation(f"plan {row.plan} begins while {share} of the hosts are lost")
        if self.operator is not None:
            waiting = before.proposals.items() if before is not None else ()
            self.operator.check(row, {app: each.id for app, each in waiting})
        if row.lost:
            self._see_loss(row)
            return
        self.rules.see_moves(row.plan, [(each, move.target) for move in row.handovers for each in move.key_groups])
        self.zones.see_moves(self.timeline.now, row.plan, [each.target for each in row.handovers])
        wanted = row.reason.startswith(NOT_FOR_BALANCE) or BY_RULE in row.reason
        if not wanted and row.before <= self.bounds.load_distance:
            raise Violation(f"plan {row.plan} moves inside the band: {row.before:.2f}")
        if self.windowed and not wanted:
            self.in_windows += 1
            if not in_window(self.timeline.now):
                raise Violation(f"windows: plan {row.plan} for balance begins outside them")
        if not row.handovers:
            raise Violation(f"plan {row.plan} begins without a hand-over")
        moves = sum(len(handover.key_groups) for handover in row.handovers)
        if moves > self.bounds.max_migrations:
            raise Violation(f"budget: plan {row.plan} moves {moves} key groups, {self.bounds.max_migrations} allowed")
        if max(len(handover.key_groups) for handover in row.handovers) > self.bounds.key_groups_per_handover:
            raise Violation(f"budget: plan {row.plan} has a hand-over that is too large")
        self._see_targets(row)
        self.plans.append((self.timeline.now, row.plan))
        self.on_plan()

    def _see_loss(self, row: Round) -> None:
        """Next owners for what a worker had that is lost: each key group once, and none to a lost worker."""
        named = [each for handover in row.handovers for each in handover.key_groups]
        if len(named) != len(set(named)):
            raise Violation(f"plan {row.plan} names two next owners of a key group")
        if lost := {each.source for each in row.handovers} & {each.target for each in row.handovers}:
            raise Violation(f"plan {row.plan} gives to {', '.join(sorted(lost))}, which it says is lost")
        self.losses.append(row.plan)
        self.on_plan()

    def _see_targets(self, row: Round) -> None:
        """Plans for balance must not give more and more to a full worker, whatever it says of its key groups."""
        if row.reason.startswith(NOT_FOR_BALANCE) or BY_RULE in row.reason:
            return
        full = {handover.target for handover in row.handovers} & self.over_capacity()
        self.given = {worker: self.given.get(worker, 0) + 1 for worker in full}
        for worker, plans in self.given.items():
            if plans >= PLANS_TO_A_FULL_WORKER:
                raise Violation(f"over capacity: plan {row.plan} is number {plans} in a row that gives to {worker}")

    def _see_round(self, row: Round) -> None:
        self.budget.see(self.timeline.now, row)
        if row.ended_at is not None:
            self._ended_plans.add(row.plan)
        elif row.plan in self._ended_plans:
            raise Violation(f"plan {row.plan} is in flight again after its end")
        phases = {handover.phase for handover in row.handovers}
        if row.stopped is not None and not phases.isdisjoint({HandoverPhase.WAITING, HandoverPhase.PREPARING}):
            raise Violation(f"plan {row.plan} goes on although it was ended early")
        in_flight = sum(handover.phase in IN_FLIGHT for handover in row.handovers)
        if in_flight > self.bounds.handovers_in_flight:
            raise Violation(f"budget: {in_flight} hand-overs of plan {row.plan} in flight")
        for handover in row.handovers:
            if handover.phase in ENDED:
                self._ended_handovers.add(handover.id)
            elif handover.id in self._ended_handovers:
                raise Violation(f"hand-over {handover.id} is {handover.phase} again after its end")

    def _see_command(self, command: Command) -> None:
        known = self.commands.get(command.id)
        if known not in (None, command):
            raise Violation(f"command {command.id} is published with other content")
        if self.execution is None or command.epoch > self.execution.epoch:
            raise Violation(f"command {command.kind} {command.epoch} is published, and no journal knows of it")
        if known is None and command.epoch != self.execution.epoch:
            raise Violation(f"epochs: new command of {command.epoch} under {self.execution.epoch}")
        self.commands[command.id] = command

    def _see_placement(self, placement: Placement) -> None:
        before = self._placements.get(placement.app)
        if placement == before:
            return  # signed anew
        if before is not None and placement.epoch <= before.epoch:
            raise Violation(f"epochs: the placement goes from {before.epoch} to {placement.epoch}")
        if self.execution is None or placement.epoch != self.execution.epoch:
            raise Violation(f"placement {placement.epoch} is published apart from its journal entry")
        calm = self.timeline.now - self.disturbed_at > CALM_S
        self._placements[placement.app] = placement
        for key_group, row, known in changed_rows(placement, before):
            self.rules.see_row(key_group, row, known, calm=calm)
            self.copies.see_row(key_group, row, known, calm=calm)
        self._published[placement.app, placement.epoch] = placement

    def _see_handover(self, record: Stored) -> None:
        told = decoded(record.value, HandoverRecord)
        if told.kind is not HandoverKind.RELEASED:
            return
        for key_group in told.key_groups:
            done = told.handover, told.generation, key_group
            if done in self._released:
                raise Violation(f"plan applied twice: {key_group} is released again by {told.handover}")
            self._released.add(done)
            self.moved += 1

    # --- agents

    def see_admitted(self, host: HostId, entry: Admitted, *, clock_was_wrong: bool) -> None:
        """An agent has judged a command.  With a clock an hour ahead it may have forgotten one whose time is over."""
        command = entry.command
        if self.commands.get(command.id) != command:
            raise Violation(f"forged: agent of {host} obeys {command.kind} {command.epoch}, which nobody published")
        excused = clock_was_wrong and entry.ack.phase is Phase.EXPIRED
        if (host, command.id) in self._admitted and not excused:
            raise Violation(f"agent of {host} judges {command.kind} {command.epoch} a second time")
        self._admitted.add((host, command.id))
        if entry.ack.phase is Phase.ACCEPTED:
            if command.epoch < self._accepted.get(host, NO_EPOCH):
                raise Violation(f"epochs: agent of {host} accepts {command.epoch} after {self._accepted[host]}")
            self._accepted[host] = command.epoch

    # --- who is believed

    def see_followed(self, worker: WorkerId, placement: Placement) -> None:
        """A worker goes by a placement."""
        if self._published.get((placement.app, placement.epoch)) != placement:
            raise Violation(f"forged: {worker} follows a placement that no controller published")

    def see_believed(self, placements: Iterable[Placement]) -> None:
        """A leader begins its term with these placements."""
        for placement in placements:
            if placement != self._placements.get(placement.app):
                raise Violation(f"forged: a leader begins with placement {placement.epoch}, which is not the last one")

    def excuse_unanswered(self) -> None:
        """A key has been retired: what it signed and was not read is refused from now on."""
        self._excused.update(self.commands.keys() - self.answers.keys())

    # --- time

    def look(self) -> None:
        """What time alone can break; the rest is checked when it happens."""
        now = self.timeline.now
        for key_group, account in self.ledger.accounts.items():
            since = max(account.unowned_since, self.disturbed_at)
            if account.owner is None and now - since > UNOWNED_LIMIT_S:
                raise Violation(f"{key_group} is without an owner for {now - since:.0f} s")

    # --- the end

    @property
    def busy(self) -> bool:
        """Whether the journal has a plan in flight."""
        return bool(self.in_flight)

    @property
    def in_flight(self) -> list[str]:
        """The plans in flight, by the journal."""
        return [row.plan for row in self.execution.in_flight] if self.execution is not None else []

    def placed_workers(self) -> set[WorkerId]:
        """Owners in the placements."""
        rows = (row for placement in self._placements.values() for rows in placement.owners.values() for row in rows)
        return {row[0] for row in rows if row}

    def without_standby(self, hosts: Mapping[WorkerId, HostId]) -> list[Owners]:
        """Rows of the placements that would lose the key group's state with the owner's host, where others remain."""
        return [
            row
            for key_group, row in self.rows()
            if row
            and {hosts.get(each) for each in row[1:]} <= {hosts.get(row[0]), None}
            and len(self.rules.hosts_for(key_group, hosts.items())) > 1
        ]

    def against_rules(self, hosts: Mapping[WorkerId, HostId]) -> list[KeyGroup]:
        """Key groups on workers that rules keep them off, where these leave another host."""
        return [
            key_group
            for key_group, row in self.rows()
            if row and not self.rules.allows(key_group, row[0]) and self.rules.hosts_for(key_group, hosts.items())
        ]

    def rows(self) -> Iterator[tuple[KeyGroup, Owners]]:
        """Owner and standbys of each key group, as placed."""
        for placement in self._placements.values():
            for operator, rows in placement.owners.items():
                for partition, row in enumerate(rows):
                    yield KeyGroup(placement.app, operator, partition), row

    def misplaced(self) -> list[KeyGroup]:
        """Key groups that are elsewhere than the placement says."""
        return [
            key_group
            for key_group, account in self.ledger.accounts.items()
            if key_group.app not in self._placements
            or self._placements[key_group.app].of(key_group.operator, key_group.partition)[:1] != (account.worker,)
        ]

    def check_answers(self, hosts: set[HostId]) -> None:
        """Every command to a host that is there has been answered: acknowledged, refused or expired."""
        for command in self.commands.values():
            if command.id in self._excused or command.host not in hosts:
                continue
            if self.timeline.now < command.deadline + ANSWER_LIMIT_S:
                continue
            phases = {ack.phase for ack in self.answers.get(command.id, ())} - {Phase.ACCEPTED}
            if not phases:
                raise Violation(f"{command.kind} {command.epoch} for {command.worker} was never answered")
