"""The table of a job: the paper's figures beside those measured, balanced and collocated; pure."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from jobs.catalogue import Job
from jobs.outcome import Outcome, Phase, Saturated

NAMES = {"milp": "balanced", "albic": "collocated"}


def report(job: Job, outcomes: Mapping[str, Outcome]) -> str:
    """A Markdown table."""
    found = [{**_figures(each)} for each in outcomes.values()]
    head = ["", "paper", *(NAMES[method] for method in outcomes)]
    lines = [f"\n{job.name}: {job.title}\n", _line(head), _line(["---"] * len(head))]
    paper = {
        "collocation": job.paper.collocation,
        "load index": job.paper.load_index,
        "load distance, pp": job.paper.load_distance,
        "migrations": job.paper.migrations,
        "CPU of workers per record, µs": job.paper.cpu,
        "latency, mean, ms": job.paper.latency,
    }
    lines += [_line([name, paper.get(name, ""), *(each[name] for each in found)]) for name in (found or [{}])[0]]
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _figures(run: Outcome) -> dict[str, str]:
    before, after, verdict = run.before, run.after, run.verdict
    pauses = [pause for each in run.rounds for pause in each.pauses_s]
    moved = sum(each.migrations for each in run.rounds)
    index = None if before.load is None or after.load is None or not before.load else after.load / before.load
    return {
        "collocation": f"{_percent(before.collocation)} to {_percent(after.collocation)}"
        f" (obtainable {_percent(run.obtainable)})",
        "tuples that skip the broker": f"{_percent(before.local_sends)} to {_percent(after.local_sends)}",
        "load distance, pp": f"{_number(before.load_distance)} to {_number(after.load_distance)}",
        "load index": "unknown" if index is None else f"{index:.2f}",
        "rounds": str(len(run.rounds)),
        "migrations": str(moved),
        "pause, median and longest, s": f"{median(pauses):.2f}, {max(pauses):.2f}" if pauses else "none",
        "CPU of workers per record, µs": _change(before, after, "worker_us"),
        "CPU of the broker per record, µs": _change(before, after, "broker_us"),
        "latency, mean, ms": _latency(before, after, 0),
        "latency, 99th percentile, ms": _latency(before, after, 1),
        **_in_turn(run.turns),
        "at saturation: records per second": _change(*run.saturated, "rate"),
        "at saturation: CPU of workers per record, µs": _change(*run.saturated, "worker_us"),
        "at saturation: CPU of the broker per record, µs": _change(*run.saturated, "broker_us"),
        "results checked": f"{verdict.results:,} of {run.sent:,} records, {verdict.keys:,} keys",
        "lost, repeated, wrong": f"{verdict.lost}, {verdict.repeated}, {verdict.wrong}",
    }


def _in_turn(turns: Sequence[tuple[Phase, Phase]]) -> dict[str, str]:
    """What differs between the first and the last placement when both are measured in turn; none without turns."""
    if not turns:
        return {}

    def row(of: Callable[[Phase], float | None], form: str) -> str:
        return _pairs([(of(first), of(last)) for first, last in turns], form)

    def burst(of: Callable[[Saturated], float]) -> str:
        return row(lambda each: None if each.saturated is None else of(each.saturated), ",.0f")

    return {
        "in turn: latency, mean, ms": row(lambda each: each.latencies_ms and each.latencies_ms[0], ",.1f"),
        "in turn: latency, 99th percentile, ms": row(lambda each: each.latencies_ms and each.latencies_ms[1], ",.1f"),
        "in turn: CPU of workers per record, µs": row(lambda each: each.worker_us, ",.0f"),
        "in turn: CPU of the broker per record, µs": row(lambda each: each.broker_us, ",.0f"),
        "in turn: tuples that skip the broker": row(lambda each: each.local_sends, ".0%"),
        "in turn: at saturation: records per second": burst(lambda each: each.rate),
        "in turn: at saturation: CPU of workers per record, µs": burst(lambda each: each.worker_us),
        "in turn: at saturation: CPU of the broker per record, µs": burst(lambda each: each.broker_us),
    }


def _pairs(found: Sequence[tuple[float | None, float | None]], form: str) -> str:
    """The medians, and in brackets each turn; turns of which one half was not measured are left out."""
    known = [(first, last) for first, last in found if first is not None and last is not None]
    if not known:
        return "not noted"
    medians = median(first for first, _ in known), median(last for _, last in known)
    middle, *each = (f"{first:{form}} to {last:{form}}" for first, last in (medians, *known))
    return f"{middle} ({', '.join(each)})"


def _change(before: Phase | Saturated, after: Phase | Saturated, name: str) -> str:
    was, now = getattr(before, name), getattr(after, name)
    return f"{was:,.0f} to {now:,.0f} ({now / was:.2f})"


def _latency(before: Phase, after: Phase, place: int) -> str:
    if before.latencies_ms is None or after.latencies_ms is None:
        return "not noted"
    return f"{before.latencies_ms[place]:.1f} to {after.latencies_ms[place]:.1f}"


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"
