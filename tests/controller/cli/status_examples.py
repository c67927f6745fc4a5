"""A status that tests of its views begin with, and the lines that it becomes."""

import io
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from rich.console import Console

from trimtab_controller.cli.status import show_status
from trimtab_controller.leadership.group import Member
from trimtab_controller.seen import Seen
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.messages.names import AppId, Epoch, HostId, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import AppStatus, DecisionStatus, NodeStatus, RoundStatus, Status

NOW = 1_000_000.0
APP = AppId("orders")


def node(name: str, load: float | None = 50.0, **other: object) -> NodeStatus:
    default = NodeStatus(
        worker=WorkerId(name),
        host=HostId(f"host-{name}"),
        app=APP,
        state=WorkerState.RUNNING,
        capacity=1.0,
        load_pct=load,
        key_groups=32,
        draining=False,
        steering=True,
        used_pct=72.5,
        demand_pct=93.5,
        backlog=12_345,
        memory_bytes=180_200_000,
    )
    return replace(default, **other)  # type: ignore[arg-type]


ROUND = RoundStatus(
    plan="3.14", app=APP, reason="load distance 8.6 above 5.0", status="optimal", fallback=False, started_at=NOW - 90,
    ended_at=NOW - 80, before=8.6, planned=0.4, after=0.7, lower_bound=0.3, migrations=13, failed=0,
    bytes_moved=1000, handovers={"done": 4}, pauses_s=(0.1, 0.2, 0.3),
)  # fmt: skip
STATUS = Status(
    cluster="prod",
    at=NOW - 1,
    acting=True,
    epoch=Epoch(3, 15),
    paused=None,
    window_end=NOW - 4,
    coverage=1.0,
    intents={},
    nodes=(node("orders-1", 61.25), node("orders-2", 39.0, key_groups=31)),
    apps=(AppStatus(app=APP, key_groups=63, load_distance=2.25, mean_load=50.0, not_ready=None, noise=0.5),),
    decisions=(
        DecisionStatus(at=NOW - 90, kind="plan", reason="load_distance", text="plan 3.14: 13 moves"),
        DecisionStatus(
            at=NOW - 4,
            kind="skip",
            reason="inside_band",
            text="nothing: load distance 2.3 pp, inside the band of 5.0 pp",
        ),
    ),
    rounds=(ROUND,),
)
LEADER = Member(name="ctl-1:2817", address="10.0.0.1", leads=True)
STANDBY = Member(name="ctl-2:99", address="10.0.0.2", leads=False)


def shown(
    status: Status,
    *controllers: Member,
    width: int = 80,
    all_nodes: bool = False,
    intents: Mapping[str, Intent | None] | None = MappingProxyType({}),
) -> list[str]:
    """The lines that are printed, without what pads them."""
    output = io.StringIO()
    console = Console(file=output, width=width, highlight=False, markup=False)
    seen = Seen(status=status, controllers=controllers or (LEADER,), now=NOW, intents=intents)
    show_status(seen, console, all_nodes=all_nodes)
    return [line.rstrip() for line in output.getvalue().splitlines()]
