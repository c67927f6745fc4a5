"""Which reports are used: SQL that says what is wrong with one, by the same rules as `messages.report.decode_report`.

A report is used as a whole or not at all, so a host with a bad sample counts as not seen rather than as idle.  Unlike
the decoder this ignores unknown fields, and a CPU time must be one that a host can have.
"""

from collections.abc import Mapping
from enum import StrEnum

from trimtab_models.messages.decode import NAME_PATTERN, Fault
from trimtab_models.messages.names import MAX_PARTITIONS
from trimtab_models.messages.report import (
    MAX_KEY_GROUPS,
    MAX_PAIRS,
    MAX_REPORT_BYTES,
    MAX_WORKERS,
    VERSION,
    Basis,
    Mark,
    WorkerState,
)

MAX_CORES = 10_000
"""No host has more: CPU seconds above this times the interval are no measurement."""
MAX_NUMBER = 1e18

# Workers, key groups and pairs share one type: the arrays can then be joined without rebuilding a single sample.
SAMPLE_TYPE = (
    "STRUCT<"
    "w STRING, a STRING, s STRING, cap DOUBLE, cpu DOUBLE, mem LONG, st BOOLEAN, ep ARRAY<LONG>, g LONG, "
    "m ARRAY<STRING>, o STRING, p LONG, ni LONG, no LONG, bi LONG, bo LONG, sb LONG, lg LONG, bl LONG, "
    "fo STRING, fp LONG, to STRING, tp LONG, n LONG, b LONG>"
)
BROKEN = "broken"
"""Holds the text of a report that is not JSON or has a value of a wrong type."""
REPORT_SCHEMA = (
    "v LONG, c STRING, h STRING, t LONG, i DOUBLE, q LONG, "
    "n STRUCT<cpu: DOUBLE, cor: DOUBLE, b: STRING, rx: LONG, tx: LONG, mem: LONG, lim: LONG>, "
    f"w ARRAY<{SAMPLE_TYPE}>, k ARRAY<{SAMPLE_TYPE}>, e ARRAY<{SAMPLE_TYPE}>, {BROKEN} STRING"
)


def parsable(value: str) -> str:
    """The SQL of the text to parse: NULL for a report that is too large."""
    return f"if(octet_length({value}) <= {MAX_REPORT_BYTES}, CAST({value} AS STRING), NULL)"


def fault(*, cluster: str, value: str, report: str, ahead_ms: str, max_ahead_ms: int) -> str:
    """The SQL of the fault of a report, NULL for a good one.

    `value` names the raw bytes, `report` the parsed struct, `ahead_ms` how far its time is ahead of its arrival.
    """
    faults: Mapping[Fault, str] = {
        Fault.OVERSIZED: f"octet_length({value}) > {MAX_REPORT_BYTES} OR {_too_many(report)}",
        Fault.VERSION: f"{report}.v <> {VERSION}",
        Fault.MALFORMED: f"{report} IS NULL OR {report}.{BROKEN} IS NOT NULL",
        Fault.MISSING: _missing(report),
        Fault.CLUSTER: f"{report}.c <> '{cluster}'",
        Fault.RANGE: _out_of_range(report),
        Fault.FUTURE: f"{ahead_ms} > {max_ahead_ms}",
    }
    return "CASE " + " ".join(f"WHEN {wrong} THEN '{name}'" for name, wrong in faults.items()) + " END"


def _too_many(r: str) -> str:
    limits = {"w": MAX_WORKERS, "k": MAX_KEY_GROUPS, "e": MAX_PAIRS}
    return " OR ".join(f"size({r}.{name}) > {limit}" for name, limit in limits.items())


# Spark compiles what works on a whole column of an array (`r.k.cpu`), and interprets what works on its elements: the
# latter is used for a single test at a time and where nothing else will do.
def _missing(r: str) -> str:
    needed = {"w": "w s cap st m", "k": "w a o p", "e": "a fo fp to tp n b"}
    tests = [f"concat({r}.c, {r}.h, {r}.n.b) IS NULL OR {r}.v + {r}.t + {r}.i + {r}.q IS NULL"]
    for array, names in needed.items():
        tests.append(f"{r}.{array} IS NULL")
        tests += [_any(f"{r}.{array}.{name}", "y IS NULL") for name in names.split()]
    return " OR ".join(tests)


def _out_of_range(r: str) -> str:
    cpu_limit = f"{MAX_CORES} * {r}.i"
    counts = {"w": "mem g", "k": "ni no bi bo sb lg bl", "e": "n b"}
    names = {"w": "w a", "k": "w a o", "e": "a fo to"}
    tests = [
        _no_name(f"{r}.h"),
        f"{r}.i < 0.001 OR {r}.i > 3600",
        f"least({r}.t, {r}.q, {r}.n.rx, {r}.n.tx, {r}.n.mem, {r}.n.lim, {r}.n.cpu, {r}.n.cor) < 0",
        f"{r}.n.cpu > {cpu_limit} OR {r}.n.cor > {MAX_NUMBER}",
        _not_in(f"{r}.n.b", Basis),
        _any(f"{r}.w.s", _not_in("y", WorkerState)),
        _any(f"{r}.w.m", f"exists(y, z -> z IS NULL OR {_not_in('z', Mark)})"),
        _any(f"{r}.w.ep", "size(y) <> 2 AND y IS NOT NULL OR array_min(y) < 0 OR exists(y, z -> z IS NULL)"),
        _outside(f"{r}.w.cap", 0.001, MAX_CORES),
        *(_outside(f"{r}.{array}.cpu", 0, cpu_limit) for array in "wk"),
        *(_outside(f"{r}.{partition}", 0, MAX_PARTITIONS) for partition in ("k.p", "e.fp", "e.tp")),
        *(f"array_min({r}.{array}.{name}) < 0" for array, columns in counts.items() for name in columns.split()),
        *(_any(f"{r}.{array}.{name}", _no_name("y")) for array, columns in names.items() for name in columns.split()),
    ]
    return " OR ".join(tests)


def _any(array: str, test: str) -> str:
    return f"exists({array}, y -> {test})"


def _outside(array: str, low: float, high: float | str) -> str:
    """Also true for NaN, which Spark orders above every number."""
    return f"array_min({array}) < {low} OR array_max({array}) > {high}"


def _no_name(name: str) -> str:
    # \z, because $ would let a final line feed through; doubled for the SQL literal.
    return f"NOT {name} RLIKE '^({NAME_PATTERN.pattern})\\\\z'"


def _not_in(x: str, family: type[StrEnum]) -> str:
    return f"{x} NOT IN ({', '.join(repr(str(member)) for member in family)})"
