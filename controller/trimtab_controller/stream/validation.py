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


def _missing(r: str) -> str:
    needed = {"w": "w s cap st m", "k": "w a o p", "e": "a fo fp to tp n b"}
    absent = [f"{r}.{name} IS NULL" for name in (*"vchtiqnwke", "n.b")]
    for array, names in needed.items():
        tests = " OR ".join(["x IS NULL", *(f"x.{name} IS NULL" for name in names.split())])
        absent.append(f"exists({r}.{array}, x -> {tests})")
    return " OR ".join(absent)


def _out_of_range(r: str) -> str:
    cpu_limit = f"{MAX_CORES} * {r}.i"
    host = [
        _no_name(f"{r}.h"),
        _outside(f"{r}.i", 0.001, 3600),
        *(f"{r}.{name} < 0" for name in ("t", "q", "n.rx", "n.tx", "n.mem", "n.lim")),
        _outside(f"{r}.n.cpu", 0, cpu_limit),
        _outside(f"{r}.n.cor", 0, MAX_NUMBER),
        _not_in(f"{r}.n.b", Basis),
    ]
    worker = [
        _no_name("x.w"),
        _no_name("x.a"),
        _not_in("x.s", WorkerState),
        _outside("x.cap", 0.001, MAX_CORES),
        _outside("x.cpu", 0, cpu_limit),
        "x.mem < 0 OR x.g < 0",
        "x.ep IS NOT NULL AND (size(x.ep) <> 2 OR coalesce(x.ep[0], -1) < 0 OR coalesce(x.ep[1], -1) < 0)",
        f"exists(x.m, y -> y IS NULL OR {_not_in('y', Mark)})",
    ]
    key_group = [
        *(_no_name(f"x.{name}") for name in ("w", "a", "o")),
        _outside("x.p", 0, MAX_PARTITIONS),
        _outside("x.cpu", 0, cpu_limit),
        *(f"x.{name} < 0" for name in ("ni", "no", "bi", "bo", "sb", "lg", "bl")),
    ]
    pair = [
        *(_no_name(f"x.{name}") for name in ("a", "fo", "to")),
        *(_outside(f"x.{name}", 0, MAX_PARTITIONS) for name in ("fp", "tp")),
        "x.n < 0 OR x.b < 0",
    ]
    arrays = {"w": worker, "k": key_group, "e": pair}
    return " OR ".join(host + [f"exists({r}.{name}, x -> {' OR '.join(tests)})" for name, tests in arrays.items()])


def _outside(x: str, low: float, high: float | str) -> str:
    """Also true for NaN, which Spark orders above every number."""
    return f"({x} < {low} OR {x} > {high})"


def _no_name(x: str) -> str:
    # \z, because $ would let a final line feed through; doubled for the SQL literal.
    return f"NOT ({x} RLIKE '^({NAME_PATTERN.pattern})\\\\z')"


def _not_in(x: str, family: type[StrEnum]) -> str:
    return f"{x} NOT IN ({', '.join(repr(str(member)) for member in family)})"
