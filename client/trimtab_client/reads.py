"""What the console knows of the cluster."""

from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeVar

from trimtab_client.errors import Changed
from trimtab_client.link import Link
from trimtab_protocol.console_documents import (
    MAX_PAGE,
    Bars,
    ClusterDocument,
    EventDocument,
    Flow,
    HostOrder,
    HostRow,
    IntentDocument,
    KeyGroupMap,
    KeyGroupOrder,
    KeyGroupRow,
    KeyGroupWhy,
    LiveChange,
    MovesByWorker,
    Moving,
    Operator,
    Page,
    Placed,
    PlacementRow,
    PlanExplanation,
    PlanReport,
    Point,
    RuleDocument,
    Runbook,
    SessionDocument,
    WorkerOrder,
    ZoneRow,
)
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import (
    AppStatus,
    CapacityStatus,
    ConcernStatus,
    DecisionStatus,
    NodeStatus,
    PoolStatus,
    ProposalStatus,
    SizeStatus,
)

T = TypeVar("T")


class Reads:
    """The resources that only tell something.

    Loads in percent of the capacity, load distances in pp, times in epoch seconds; None = unknown.  Lists are read page
    by page, as far as they are asked for; one that changes meanwhile may name a row twice, or miss one.  All methods
    raise ConsoleError: ProblemError with status 404 where there is no such thing, 503 while nothing is known yet.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    def cluster(self) -> ClusterDocument:
        """The state, who leads, and the sums over all workers."""
        return self._link.get(ClusterDocument, "cluster")

    def session(self) -> SessionDocument:
        """Whose token this is, and what it may do."""
        return self._link.get(SessionDocument, "session")

    def live(self) -> Generator[LiveChange, None, None]:
        """An item whenever something changed, and about every five seconds; without end, across breaks.

        `close()` ends it.
        """
        return self._link.changes()

    def workers(
        self,
        *,
        app: str | None = None,
        host: str | None = None,
        state: WorkerState | None = None,
        name: str | None = None,
        order: WorkerOrder = WorkerOrder.NAME,
    ) -> Iterator[NodeStatus]:
        """The workers, of one app, host or state if it is named; `name` = a part of their names."""
        given = {"app": app, "host": host, "state": state, "name": name, "order": order}
        return self._pages(NodeStatus, "workers", **given)

    def worker(self, name: str) -> NodeStatus:
        """One worker."""
        return self._link.get(NodeStatus, "workers", name)

    def bars(self, *, app: str | None = None, most: int = 1_000) -> Bars:
        """All workers, or those of an app, as at most `most` bars, ordered by zone and host."""
        return self._link.get(Bars, "workers", "bars", app=app, most=most)

    def hosts(
        self, *, zone: str | None = None, name: str | None = None, order: HostOrder = HostOrder.NAME
    ) -> Iterator[HostRow]:
        """The hosts with their workers, of one zone if it is named; `name` = a part of their names."""
        return self._pages(HostRow, "hosts", zone=zone, name=name, order=order)

    def zones(self) -> Iterator[ZoneRow]:
        """The zones with the sums over their workers; none if no agent names its zone."""
        return self._pages(ZoneRow, "zones")

    def rules(self) -> Iterator[RuleDocument]:
        """The rules that the controller knows, those of controller.toml first."""
        return self._pages(RuleDocument, "rules")

    def pool(self) -> Iterator[PoolStatus]:
        """The workers that can be started."""
        return self._pages(PoolStatus, "pool")

    def decisions(self) -> Iterator[DecisionStatus]:
        """The last decisions, newest first."""
        return self._pages(DecisionStatus, "decisions")

    def concerns(self) -> Iterator[ConcernStatus]:
        """The problems of apps; `kind` is the name of the runbook."""
        return self._pages(ConcernStatus, "concerns")

    def intents(self) -> Iterator[IntentDocument]:
        """What operators asked for and has not been revoked."""
        return self._pages(IntentDocument, "intents")

    def runbook(self, name: str) -> Runbook:
        """What an alert or a reason means, and what to do, as Markdown."""
        return self._link.get(Runbook, "runbooks", name)

    def apps(self) -> Iterator[AppStatus]:
        """The apps of the cluster."""
        return self._pages(AppStatus, "apps")

    def app(self, app: str) -> AppStatus:
        """One app."""
        return self._link.get(AppStatus, "apps", app)

    def size(self, app: str) -> SizeStatus:
        """How many workers the app has and should have; 404: the controller does not judge it."""
        return self._link.get(SizeStatus, "apps", app, "size")

    def headroom(self, app: str) -> CapacityStatus:
        """How many times its present input fits into the app's workers; 404: unknown."""
        return self._link.get(CapacityStatus, "apps", app, "headroom")

    def history(self, app: str) -> Iterator[Point]:
        """The figures of the app over time, newest first: what the console has seen."""
        return self._pages(Point, "apps", app, "history")

    def operators(self, app: str) -> Sequence[Operator]:
        """The operators of the app in the last window."""
        return self._link.get(tuple[Operator, ...], "apps", app, "operators")

    def flows(self, app: str) -> Iterator[Flow]:
        """What the operators of the app send to each other in the last window, the largest flows first."""
        return self._pages(Flow, "apps", app, "flows")

    def key_groups(
        self, app: str, operator: str, *, order: KeyGroupOrder = KeyGroupOrder.PARTITION
    ) -> Iterator[KeyGroupRow]:
        """The key groups of an operator in the last window."""
        return self._pages(KeyGroupRow, "apps", app, "operators", operator, "key-groups", order=order)

    def key_group_map(self, app: str, operator: str, *, cells: int = 4_096) -> KeyGroupMap:
        """All key groups of an operator in at most `cells` cells."""
        return self._link.get(KeyGroupMap, "apps", app, "operators", operator, "map", cells=cells)

    def placement(self, app: str, *, operator: str | None = None) -> Iterator[PlacementRow]:
        """The published placement of the app: owners and standbys; 404: workers assign by their own rule.

        Raises Changed if another one is published meanwhile.
        """
        offset, epoch = 0, None
        while True:
            path = ("apps", app, "placement")
            page = self._link.get(Placed, *path, operator=operator, offset=offset, limit=MAX_PAGE)
            if epoch not in (None, page.epoch):
                raise Changed(f"the placement of {app} changed from epoch {epoch} to {page.epoch}: read it again")
            yield from page.items
            offset, epoch = offset + len(page.items), page.epoch
            if not page.items or offset >= page.total:
                return

    def proposals(self, *, app: str | None = None) -> Iterator[ProposalStatus]:
        """Plans that wait for approval, and those that were rejected a short while ago."""
        return self._pages(ProposalStatus, "proposals", app=app)

    def plans(self, *, app: str | None = None) -> Iterator[PlanReport]:
        """Plans in flight and past ones, newest first."""
        return self._pages(PlanReport, "plans", app=app)

    def plan(self, plan: str) -> PlanReport:
        """One plan."""
        return self._link.get(PlanReport, "plans", plan)

    def moves(self, plan: str) -> Iterator[Moving]:
        """What a plan moves, by the journal."""
        return self._pages(Moving, "plans", plan, "moves")

    def moves_by_worker(self, plan: str, *, most: int = 12) -> MovesByWorker:
        """What a plan moves from worker to worker; `most` workers on each side are named, the others count together."""
        return self._link.get(MovesByWorker, "plans", plan, "moves", "by-worker", most=most)

    def explanation(self, plan: str) -> PlanExplanation:
        """Why each move of a plan was made, its predicted and measured loads; 404: no event of it is kept."""
        return self._link.get(PlanExplanation, "plans", plan, "explanation")

    def events(
        self,
        *,
        app: str | None = None,
        kind: str | None = None,
        plan: str | None = None,
        since: float | None = None,
        text: str | None = None,
    ) -> Iterator[EventDocument]:
        """The newest events first, of one app, kind or plan if it is named; `since` = epoch seconds.

        `text` = a part of what they tell, such as a worker's name; upper and lower case are the same.
        """
        return self._pages(EventDocument, "events", app=app, kind=kind, plan=plan, since=since, text=text)

    def why(self, app: str, operator: str, partition: int) -> KeyGroupWhy:
        """Where a key group is, since when and by which plan, and what moving it to each worker would do."""
        return self._link.get(KeyGroupWhy, "why", app, operator, str(partition))

    def _pages(self, kind: type[T], /, *path: str, **query: object) -> Iterator[T]:
        pages: type[Page[Any]] = Page[kind]  # type: ignore[valid-type]
        offset = 0
        while True:
            page = self._link.get(pages, *path, **query, offset=offset, limit=MAX_PAGE)
            yield from page.items
            offset += len(page.items)
            if not page.items or offset >= page.total:
                return
