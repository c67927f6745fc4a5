"""Output of the demo, while it runs and at its end."""

from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flights.demo.noise import FALSE_ALARM
from flights.demo.summary import MAX_DISTANCE_OVER_BOUND
from trimtab_protocol.messages.status import Status

BAR = 30


class View:
    """A live view on a terminal; plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._said: set[tuple[float, str]] = set()
        self._phase = ""

    def phase(self, seconds: float, text: str) -> None:
        """Show that a new phase begins."""
        self._phase = text
        self._console.print(f"[bold]{seconds:6.1f} s  {text}[/bold]")

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, highlight=False)

    def show(self, status: Status | None, seconds: float, sent: int) -> None:
        """Show the present state."""
        if status is None:
            return
        for decision in status.decisions:
            if decision.kind != "skip" and (decision.at, decision.text) not in self._said:
                self._said.add((decision.at, decision.text))
                self._console.print(f"{seconds:6.1f} s  {decision.text}", markup=False, highlight=False)
        if self._live is not None:
            head = Text(f"{seconds:6.1f} s  {self._phase}   {sent:,} flights sent")
            self._live.update(Group(head, _workers(status), Text(_last(status), style="dim")))

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


def _last(status: Status) -> str:
    return status.decisions[-1].text if status.decisions else "no decision yet"


def _workers(status: Status) -> Table:
    table = Table("worker", "load", "", "key groups", "state", box=None)
    for node in status.nodes:
        load = node.load_pct
        filled = 0 if load is None else min(BAR, round(load * BAR / 100))
        state = f"{node.state}{', draining' if node.draining else ''}"
        shown = "unknown" if load is None else f"{load:5.1f} %"
        table.add_row(node.worker, shown, "█" * filled + "·" * (BAR - filled), str(node.key_groups), state)
    return table


def closing(document: Mapping[str, Any]) -> RenderableType:
    """The summary as tables, with the violations and missed promises."""
    rounds = Table(title="Rounds", title_justify="left")
    columns = ("at", "why", "before", "planned", "bound", "after", "moves", "bytes", "pause of moved", "others", "calm")
    for name in columns:
        rounds.add_column(name, justify="left" if name == "why" else "right", no_wrap=name != "why")
    for row in document["rounds"]:
        pause = row["pause_seconds"]
        rounds.add_row(
            f"{row['at']:.0f} s",
            row["reason"],
            *(_number(row[f"load_distance_{name}"]) for name in ("before", "planned")),
            _number(row["lower_bound"]),
            f"{_number(row['load_distance_after'])} /{row['windows_after']:2}",
            str(row["migrations"]),
            f"{row['bytes_moved']:,}",
            _seconds(pause["moved"]),
            _seconds(pause["others"]),
            _seconds(pause["calm"]),
        )
    events, answers, cpu = document["events"], document["answers"], document["cpu_seconds"]
    facts = [
        f"{events['sent']:,} flights sent, {events['processed']:,} processed, {events['lost']} lost, "
        f"{events['duplicated']} counted twice; {answers['checked']:,} sums checked, {answers['wrong']} wrong, "
        f"{answers['stepped_back']} counts stepped back",
        f"load distances in percentage points; after = of the mean loads, / windows until the next round; promised "
        f"after the last round of a phase, but not while the load is high: at most {MAX_DISTANCE_OVER_BOUND:g} above "
        "the bound",
        f"noise: standard deviation from window to window {_noise(document)} pp; {document['comparisons']} "
        f"comparisons, a false alarm in at most {FALSE_ALARM:.2%} of runs",
        "pauses: median / longest, of moved key groups, of the others meanwhile, and of all key groups in the same "
        "seconds of windows without moves",
        "pauses of the whole run: "
        + ", ".join(f"{name} {_seconds(pause)}" for name, pause in document["pause_seconds"].items())
        + f"; joining, leaving: of all key groups while {document['scaled']['worker']} did so, a rebalance each",
        *_scaled(document["scaled"]),
        *([collocated(document["collocated"])] if document["collocated"] else []),
        "CPU seconds: " + ", ".join(f"{name} {seconds:.0f}" for name, seconds in cpu.items()),
        f"{document['left_over']['processes']} processes and {document['left_over']['ports']} ports left over",
    ]
    verdict = [Text(f"BROKEN: {text}", style="bold red") for text in document["broken"]]
    verdict += [Text(f"missed: {text}", style="bold yellow") for text in document["missed"]]
    verdict = verdict or [Text("every promise was kept", style="bold green")]
    return Group(rounds, Text(""), *(Text(fact) for fact in facts), *verdict)


def _scaled(scaled: Mapping[str, Any]) -> list[str]:
    """What became of the worker of the pool."""
    worker, factor = scaled["worker"], f"{scaled['load_factor']:g}"
    if scaled["started_after_s"] is None:
        return [f"load x {factor}: {worker} was not started, the highest worker used {_percent(scaled)}"]
    helped = "never" if scaled["helped_after_s"] is None else f"after {scaled['helped_after_s']:.0f} s"
    stopped = "not stopped" if scaled["stopped_after_s"] is None else f"stopped after {scaled['stopped_after_s']:.0f} s"
    rise = (
        f"load x {factor}: {worker} started {scaled['started_after_s']:.0f} s after it began to rise, had key groups "
        f"{helped}, {scaled['key_groups']} at most; until then the highest worker used {_percent(scaled)}"
    )
    if not scaled["drained"]:
        return [rise]
    return [
        rise,
        f"load back: {worker} drained and {stopped}, {scaled['key_groups_left']} key groups left, "
        f"exit code {scaled['exit_code']}",
    ]


def collocated(found: Mapping[str, Any]) -> str:
    """What collocation was to save and has saved."""
    ways = (("on one worker", "collocation"), ("past the broker", "local_sends"))
    shares = ", ".join(
        f"{name} {_share(found[f'{key}_before'])} -> {_share(found[f'{key}_after'])}" for name, key in ways
    )
    if found["promised_cores"] is None:
        return f"collocation: no plan for it was carried out; flights {shares}"
    saved = "an unknown share"
    if found["saved_cores"] is not None:
        saved = f"{found['saved_cores']:.3f} +- {found['saved_error']:.3f} of {found['cores_before']:.3f}"
    return (
        f"collocation: flights {shares}, with {found['migrations']} moves; {found['promised_cores']:.3f} cores were "
        f"promised to be saved, {saved} were"
    )


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"


def _percent(scaled: Mapping[str, Any]) -> str:
    used = scaled["highest_use_pct"]
    return "an unknown share of its capacity" if used is None else f"{used:.0f} % of its capacity"


def _noise(document: Mapping[str, Any]) -> str:
    return ", ".join(f"{row['pp']:.2f} ({worker})" for worker, row in document["window_noise"].items())


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def _seconds(pause: Mapping[str, float | None]) -> str:
    if pause["median"] is None or pause["max"] is None:
        return "-"
    return f"{pause['median']:.2f} / {pause['max']:.2f} s"
