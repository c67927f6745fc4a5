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


# Spark plans every batch anew, so these expressions are kept small: concatenation and addition are NULL when one part
# is, `least` and `greatest` leave NULL out, and names joined by what none may contain are matched at once.
def _missing(r: str) -> str:
    arrays = {
        "w": "concat(x.w, x.s) IS NULL OR x.cap IS NULL OR x.st IS NULL OR x.m IS NULL",
        "k": "concat(x.w, x.a, x.o) IS NULL OR x.p IS NULL",
        "e": "concat(x.a, x.fo, x.to) IS NULL OR x.fp + x.tp + x.n + x.b IS NULL",
    }
    report = f"concat({r}.c, {r}.h, {r}.n.b) IS NULL OR {r}.v + {r}.t + {r}.i + {r}.q IS NULL"
    absent = [f"{r}.{name} IS NULL OR exists({r}.{name}, x -> {test})" for name, test in arrays.items()]
    return " OR ".join([report, *absent])


def _out_of_range(r: str) -> str:
    cpu_limit = f"{MAX_CORES} * {r}.i"
    host = [
        _no_names(f"{r}.h"),
        _outside(f"{r}.i", 0.001, 3600),
        _negative(*(f"{r}.{name}" for name in ("t", "q", "n.rx", "n.tx", "n.mem", "n.lim"))),
        _outside(f"{r}.n.cpu", 0, cpu_limit),
        _outside(f"{r}.n.cor", 0, MAX_NUMBER),
        _not_in(f"{r}.n.b", Basis),
    ]
    worker = [
        _no_names("x.w", "coalesce(x.a, 'none')"),
        _not_in("x.s", WorkerState),
        _outside("x.cap", 0.001, MAX_CORES),
        _outside("x.cpu", 0, cpu_limit),
        _negative("x.mem", "x.g", "array_min(x.ep)"),
        "size(x.ep) <> 2 AND x.ep IS NOT NULL OR exists(x.ep, y -> y IS NULL)",
        f"exists(x.m, y -> y IS NULL OR {_not_in('y', Mark)})",
    ]
    key_group = [
        _no_names("x.w", "x.a", "x.o"),
        _outside("x.p", 0, MAX_PARTITIONS),
        _outside("x.cpu", 0, cpu_limit),
        _negative(*(f"x.{name}" for name in ("ni", "no", "bi", "bo", "sb", "lg", "bl"))),
    ]
    pair = [
        _no_names("x.a", "x.fo", "x.to"),
        _negative("x.fp", "x.tp", "x.n", "x.b"),
        f"greatest(x.fp, x.tp) > {MAX_PARTITIONS}",
    ]
    arrays = {"w": worker, "k": key_group, "e": pair}
    return " OR ".join(host + [f"exists({r}.{name}, x -> {' OR '.join(tests)})" for name, tests in arrays.items()])


def _outside(x: str, low: float, high: float | str) -> str:
    """Also true for NaN, which Spark orders above every number."""
    return f"({x} < {low} OR {x} > {high})"


def _negative(*columns: str) -> str:
    return f"least({', '.join(columns)}) < 0"


def _no_names(*columns: str) -> str:
    pattern = "/".join([f"({NAME_PATTERN.pattern})"] * len(columns))
    # \z, because $ would let a final line feed through; doubled for the SQL literal.
    return f"NOT (concat_ws('/', {', '.join(columns)}) RLIKE '^{pattern}\\\\z')"


def _not_in(x: str, family: type[StrEnum]) -> str:
    return f"{x} NOT IN ({', '.join(repr(str(member)) for member in family)})"
