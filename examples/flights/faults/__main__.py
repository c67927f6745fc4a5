"""`python -m flights.faults [CASE ...]`: kill, count, judge; exit 0 if every promise held."""

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flights.dataset import read_flights
from flights.demo.view import View
from flights.faults.campaign import Campaign, FaultSettings, sandbox_settings
from flights.faults.cases import ALL, Case, parse_case
from flights.faults.history import read_history
from flights.faults.verdict import Cost, TableFaults, costs, table_faults
from flights.producer import NotDelivered
from flights.readback import read_table, read_topic
from flights.steered_run import RunError, SteeredRun
from flights.verify import expected_sums, flights_sent
from flights.watch import read_snapshots
from trimtab_controller.sandbox.broker import BrokerError
from trimtab_controller.sandbox.cluster import Cluster, ClusterError
from trimtab_controller.sandbox.jars import JarError
from trimtab_controller.sandbox.java import JavaMissingError
from trimtab_controller.sandbox.processes import LeftOver
from trimtab_models.messages.commands import decode_command

OUT = Path("out", "faults")
WIDTH = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a campaign has shown."""

    flights: int
    costs: tuple[Cost, ...]
    table: TableFaults
    left: LeftOver

    @property
    def allowed(self) -> int:
        """Duplicates that the deaths of workers may have made."""
        return sum(cost.allowed for cost in self.costs)

    @property
    def broken(self) -> list[str]:
        """The promises that were not kept, a sentence each."""
        broken = [
            f"{cost.suffered.case}: {cost.lost} lost, {cost.duplicated} doubled of {cost.allowed} allowed"
            for cost in self.costs
            if not cost.kept
        ]
        if not self.table.kept(self.allowed):
            broken.append(f"the table: {self.table}, {self.allowed} counted too often allowed")
        if not self.left.nothing:
            broken.append(f"left over: {self.left}")
        return broken


def run(out: Path, cases: Sequence[Case], settings: FaultSettings, console: Console) -> Verdict:
    """One campaign in a cluster of its own.  Raises RunError, ClusterError, BrokerError, NotDelivered."""
    cluster = Cluster(sandbox_settings(settings), out / "sandbox")
    console.print(f"logs: {cluster.logs}", markup=False)
    with cluster:
        with (
            View(console) as view,
            SteeredRun(cluster, key_groups=settings.key_groups, rate=settings.rate, view=view) as steered,
        ):
            suffered = Campaign(steered, settings).play(cases)
            sent = steered.finish()
        bootstrap = cluster.broker.address
        flown = read_history(bootstrap)
        flights = flights_sent(read_flights(), sent)
        commands = [decode_command(row.value) for row in read_topic(bootstrap, cluster.topics.commands)]
        snapshots = read_snapshots(bootstrap, cluster.topics)
        table = table_faults(expected_sums(flights), read_table(bootstrap))
    if len(flown) != len(flights):
        raise RunError(f"{len(flown)} flights in the source topic, {len(flights)} were sent")
    return Verdict(
        flights=len(flights),
        costs=tuple(costs(suffered, flown, snapshots, commands, commit_s=settings.commit_s)),
        table=table,
        left=cluster.left_over(),
    )


def closing(verdict: Verdict) -> Table:
    """The campaign as a table."""
    table = Table(title=f"Faults under load, {verdict.flights:,} flights", title_justify="left")
    for name in ("kill -9 of", "moment", "hit", "lost", "doubled", "allowed", "flights held up", "not steered"):
        table.add_column(name, justify="left" if name in ("kill -9 of", "moment", "hit") else "right")
    for cost in verdict.costs:
        case = cost.suffered.case
        table.add_row(
            case.fault,
            case.moment,
            cost.suffered.victim if case.fault in ("worker", "agent") else "",
            str(cost.lost),
            str(cost.duplicated),
            str(cost.allowed),
            f"{cost.stalled_s:.1f} s",
            f"{cost.unsteered_s:.1f} s",
        )
    return table


def as_document(verdict: Verdict) -> dict[str, object]:
    """The same as JSON."""
    return {
        "version": 1,
        "flights": verdict.flights,
        "faults": [
            {
                "fault": cost.suffered.case.fault,
                "moment": cost.suffered.case.moment,
                "worker": cost.suffered.victim,
                "lost": cost.lost,
                "duplicated": cost.duplicated,
                "allowed": cost.allowed,
                "held_up_seconds": round(cost.stalled_s, 2),
                "not_steered_seconds": round(cost.unsteered_s, 2),
            }
            for cost in verdict.costs
        ],
        "table": {
            "checked": verdict.table.checked,
            "counted_too_often": verdict.table.over,
            "counted_too_few_times": verdict.table.under,
            "otherwise_wrong": verdict.table.other,
        },
        "left_over": {"processes": verdict.left.processes, "ports": verdict.left.ports},
        "broken": verdict.broken,
    }


def main() -> int:
    """Run the cases; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m flights.faults", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(map(str, ALL))}; all without one")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for summary and logs")
    given = parser.parse_args()
    try:
        cases = [parse_case(text) for text in given.cases] or list(ALL)
    except ValueError as error:
        parser.error(str(error))
    out: Path = given.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        verdict = run(out, cases, FaultSettings(), console)
    except (RunError, NotDelivered, ClusterError, BrokerError, JarError, JavaMissingError) as error:
        console.print(f"not shown to its end: {error}\nlogs: {out / 'sandbox' / 'logs'}", style="red", markup=False)
        return 1
    (out / "summary.json").write_text(json.dumps(as_document(verdict), indent=1) + "\n", encoding="utf-8")
    console.print(closing(verdict))
    console.print(
        f"{verdict.table.checked:,} sums checked: flights counted too often {verdict.table.over} (allowed "
        f"{verdict.allowed}), too few times {verdict.table.under}, otherwise wrong {verdict.table.other}",
        highlight=False,
    )
    console.print(
        "held up: until the last flight that took over 1 s, be it for the death or for the shift of the load that "
        "provokes a round; not steered: until the controller has seen a whole window again",
        highlight=False,
    )
    for text in verdict.broken:
        console.print(f"NOT KEPT: {text}", style="bold red", markup=False)
    if not verdict.broken:
        console.print("every promise was kept", style="bold green")
    console.print(f"{out / 'summary.json'}\nlogs: {out / 'sandbox' / 'logs'}", markup=False)
    return 1 if verdict.broken else 0


if __name__ == "__main__":
    sys.exit(main())
