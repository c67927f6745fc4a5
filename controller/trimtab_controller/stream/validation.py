"""Validates reports: SQL that names the fault of a report, by the same rules as the declaration of `messages.report`.

A Python function per report would cost more than the rest of the stream, except where there are few (`small.py`); and
`from_json` is silent about what it drops.
A report is used as a whole or not at all, so a host with a bad sample counts as not seen rather than as idle.  Unknown
fields are ignored, as in the decoder.  `tests/fuzz` compares the two.

This is stricter than the decoder: no part may have a field that identifies another kind of part, a CPU time must be
possible on a host, no number may have a thousand digits, and UTF-16 and byte order marks are refused.  It is more
lenient where `from_json` hides the fault and no number changes: repeated keys (the last one counts), bytes that are not
UTF-8 in ignored fields, and text after the report.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from trimtab_protocol.messages.copies import MAX_COPIES, MAX_RECORDS
from trimtab_protocol.messages.decode import MAX_NUMBER, NAME_PATTERN, Fault
from trimtab_protocol.messages.names import MAX_PARTITIONS, TOPIC_PATTERN
from trimtab_protocol.messages.reason_text import REASON_PATTERN
from trimtab_protocol.messages.report import (
    MAX_CORES,
    MAX_COUNT,
    MAX_KEY_GROUPS,
    MAX_OPERATORS,
    MAX_PAIRS,
    MAX_REPORT_BYTES,
    MAX_SPEED,
    MAX_STANDBYS,
    MAX_WORKERS,
    VERSION,
    Absence,
    Basis,
    Mark,
    WorkerState,
)

# Workers, blocks of key groups and blocks of pairs share one type, so their arrays can be joined without rebuilding.
PART_TYPE = (
    "STRUCT<"
    "w STRING, a STRING, s STRING, cap DOUBLE, cpu DOUBLE, mem LONG, st BOOLEAN, ep ARRAY<LONG>, g LONG, "
    "m ARRAY<STRING>, o STRING, p ARRAY<LONG>, c ARRAY<DOUBLE>, ni ARRAY<LONG>, no ARRAY<LONG>, bi ARRAY<LONG>, "
    "bo ARRAY<LONG>, sb ARRAY<LONG>, lg ARRAY<LONG>, bl ARRAY<LONG>, "
    "fo STRING, to STRING, tpc STRING, fp ARRAY<LONG>, tp ARRAY<LONG>, n ARRAY<LONG>, b ARRAY<LONG>, dir ARRAY<LONG>, "
    "os ARRAY<STRING>, oc ARRAY<LONG>, sby LONG, unk STRING, why STRING, off STRING, dap STRING, "
    "fsh BOOLEAN, cpo ARRAY<STRING>, cpp ARRAY<LONG>, cpr ARRAY<LONG>, fol DOUBLE, psd DOUBLE, psk LONG, wai DOUBLE, "
    "cld LONG>"
)
BROKEN = "broken"
"""Holds the text of a report that is not JSON or has a value of a wrong type."""
PARSING: Mapping[str, str] = {"columnNameOfCorruptRecord": BROKEN, "allowSingleQuotes": "false"}
"""The options of `from_json`."""
REPORT_SCHEMA = (
    "v LONG, c STRING, h STRING, t LONG, i DOUBLE, q LONG, "
    "n STRUCT<cpu: DOUBLE, cor: DOUBLE, b: STRING, rx: LONG, tx: LONG, mem: LONG, lim: LONG, "
    "lnk: DOUBLE, typ: STRING, spd: DOUBLE, dkt: LONG, dkf: LONG, zon: STRING, bye: BOOLEAN>, "
    f"w ARRAY<{PART_TYPE}>, k ARRAY<{PART_TYPE}>, e ARRAY<{PART_TYPE}>, {BROKEN} STRING"
)


def parsable(value: str) -> str:
    """The SQL of the text to parse: NULL for a report that is too large."""
    return f"if(octet_length({value}) <= {MAX_REPORT_BYTES}, CAST({value} AS STRING), NULL)"


def fault(*, cluster: str, key: str, value: str, report: str, ahead_ms: str, max_ahead_ms: int) -> str:
    """The SQL of the fault of a report; NULL for a good one.

    `key` is the SQL of the key as text, `value` of the raw bytes, `report` of the parsed struct, and `ahead_ms` of the
    time by which the report is dated after its arrival.
    """
    faults: Mapping[Fault, str] = {
        Fault.OVERSIZED: f"octet_length({value}) > {MAX_REPORT_BYTES} OR {_too_many(report)}",
        Fault.VERSION: f"{report}.v <> {VERSION}",
        Fault.MALFORMED: f"{report} IS NULL OR {report}.{BROKEN} IS NOT NULL",
        Fault.MISSING: _missing(report),
        Fault.TYPE: _bare_name(value, report),
        Fault.UNKNOWN: _foreign(report),
        Fault.CLUSTER: f"{report}.c <> '{cluster}'",
        Fault.RANGE: f"NOT {report}.h <=> {key} OR {_out_of_range(report)}",
        Fault.FUTURE: f"{ahead_ms} > {max_ahead_ms}",
    }
    return "CASE " + " ".join(f"WHEN {wrong} THEN '{name}'" for name, wrong in faults.items()) + " END"


# The columns of a block: the first is in every block, the others have the same length or are null.
_COLUMNS = {"k": ("p", "c", "ni", "no", "bi", "bo", "sb", "lg", "bl"), "e": ("fp", "tp", "n", "b", "dir")}
_ALL_KNOWN = {"k": ("p",), "e": ("fp", "tp", "n", "b")}
_NAMES = {"w": "w a dap", "k": "w a o", "e": "a fo to"}
# Fields that identify other kinds of parts; with one of them, a part would be read as that kind.
_FOREIGN = {"w": "o p fo to fp tp", "k": "s fo to fp tp", "e": "w s o p"}


def _too_many(r: str) -> str:
    limits = {f"{r}.w": MAX_WORKERS, f"flatten({r}.k.p)": MAX_KEY_GROUPS, f"flatten({r}.e.fp)": MAX_PAIRS}
    tests = [f"size({array}) > {limit}" for array, limit in limits.items()]
    tests += [_any(f"{r}.w.m", f"size(y) > {len(Mark)}"), _any(f"{r}.w.os", f"size(y) > {MAX_OPERATORS}")]
    tests.append(_any(f"{r}.w.cpp", f"size(y) > {MAX_COPIES}"))
    return " OR ".join(tests)


# Spark compiles functions of whole arrays (`array_min`), but interprets those of elements (`exists`).  The latter are
# used only where there are few elements: for workers and blocks.
def _missing(r: str) -> str:
    needed = {"w": "w s cap st m", "k": "w a o", "e": "a fo to"}
    tests = [f"concat({r}.c, {r}.h, {r}.n.b) IS NULL OR {r}.v + {r}.t + {r}.i + {r}.q IS NULL"]
    for array, names in needed.items():
        tests.append(f"{r}.{array} IS NULL")
        tests += [_any(f"{r}.{array}.{name}", "y IS NULL") for name in names.split()]
    # NULL if an element is NULL; no element may be -1.
    known = [f"array_contains(flatten({r}.{array}.{name}), -1L)" for array in "ke" for name in _ALL_KNOWN[array]]
    return " OR ".join([*tests, *(f"{test} IS NULL" for test in known)])


def _bare_name(value: str, r: str) -> str:
    """Names that are JSON numbers or words: `from_json` turns them into text, so only the raw text shows them.

    The raw text is searched only if a name could be one, since that is expensive.  A backslash may hide a key.
    """
    columns = [f"{r}.{array}.{name}" for array, names in _NAMES.items() for name in names.split()]
    # A reason may contain numbers, but is not one: it is checked as one word.
    columns += [f"translate(concat_ws('|', {r}.w.{name}), ' |', '_ ')" for name in ("unk", "why")]
    columns += [f"flatten(array_compact({r}.w.{name}))" for name in ("os", "cpo")]
    columns.append(f"{r}.e.tpc")
    listed = f"concat_ws(' ', {r}.c, {r}.h, {r}.n.typ, {r}.n.zon, {', '.join(columns)})"
    could_be = rf"{listed} RLIKE '(^| )(true|false|-?NaN|-?Infinity|-?[0-9][0-9.eE-]*)( |$)'"
    bare = (
        r"\\\\",
        r'"([chwao]|fo|to|tpc|unk|why|dap|typ|zon)"\\s*:\\s*[^"\\[n\\s]',
        r'"(os|cpo)"\\s*:\\s*\\[([^\\]]*,)?\\s*[^"\\s\\],]',
    )
    return f"{could_be} AND CAST({value} AS STRING) RLIKE '{'|'.join(bare)}'"


def _foreign(r: str) -> str:
    return " OR ".join(
        _any(f"{r}.{array}", " OR ".join(f"y.{name} IS NOT NULL" for name in names.split()))
        for array, names in _FOREIGN.items()
    )


def _out_of_range(r: str) -> str:
    cpu_limit = f"{MAX_CORES} * {r}.i"
    tests = [
        no_name(f"{r}.h"),
        f"{r}.i < 0.001 OR {r}.i > 3600",
        f"least({r}.t, {r}.q, {r}.n.rx, {r}.n.tx, {r}.n.mem, {r}.n.lim, {r}.n.lnk, {r}.n.cpu, {r}.n.cor) < 0",
        f"least({r}.n.dkt, {r}.n.dkf) < 0",
        f"{r}.n.cpu > {cpu_limit} OR {r}.n.cor > {MAX_NUMBER} OR {r}.n.lnk > {MAX_NUMBER}",
        f"{r}.n.spd < 0.001 OR {r}.n.spd > {MAX_SPEED} OR {no_name(f'{r}.n.typ')}",
        no_name(f"{r}.n.zon"),
        _not_in(f"{r}.n.b", Basis),
        _any(f"{r}.w.s", _not_in("y", WorkerState)),
        _any(f"{r}.w.off", _not_in("y", Absence)),
        _any(f"{r}.w.m", f"exists(y, z -> z IS NULL OR {_not_in('z', Mark)})"),
        _any(
            f"{r}.w.ep", f"size(y) <> 2 AND y IS NOT NULL OR {_outside('y', 0, MAX_COUNT)} OR exists(y, z -> z IS NULL)"
        ),
        _outside(f"{r}.w.cap", 0.001, MAX_CORES),
        *(_outside(f"{r}.w.{name}", 0, cpu_limit) for name in ("cpu", "fol")),
        *(f"array_min({r}.w.{name}) < 0" for name in ("mem", "g", "psk", "cld")),
        _outside(f"{r}.w.psd", 0, MAX_NUMBER),
        _outside(f"{r}.w.wai", 0, 1),
        _outside(f"{r}.w.sby", 0, MAX_STANDBYS),
        *(_any(f"{r}.w.{name}", _unlike("y", REASON_PATTERN)) for name in ("unk", "why")),
        _any(f"{r}.e.tpc", _unlike("y", TOPIC_PATTERN)),
        _any(f"{r}.w", _no_operators("y.os", "y.oc")),
        _any(f"{r}.w", _no_copies("y.cpo", "y.cpp", "y.cpr")),
        _outside(_values(f"{r}.k.c"), 0, cpu_limit),
        *(_outside(_values(f"{r}.{partition}"), 0, MAX_PARTITIONS) for partition in ("k.p", "e.fp", "e.tp")),
        *(f"array_min({_values(f'{r}.{counts}')}) < 0" for counts in _counts()),
        *(_uneven(f"{r}.{array}", columns) for array, columns in _COLUMNS.items()),
        *(_any(f"{r}.{array}.{name}", no_name("y")) for array, columns in _NAMES.items() for name in columns.split()),
    ]
    return " OR ".join(tests)


def _counts() -> list[str]:
    return [f"k.{name}" for name in _COLUMNS["k"][2:]] + ["e.n", "e.b", "e.dir"]


def _values(column: str) -> str:
    """All values of one column in all blocks; blocks without the column have none."""
    return f"flatten(array_compact({column}))"


def _uneven(blocks: str, columns: tuple[str, ...]) -> str:
    first, *others = columns
    tests = [f"array_size(y.{first}) = 0", *(f"array_size(y.{name}) <> array_size(y.{first})" for name in others)]
    return _any(blocks, " OR ".join(tests))


def _no_operators(names: str, counts: str) -> str:
    """True for unequal numbers of names and counts, invalid or repeated names, and operators without key groups."""
    tests = [
        f"array_size({names}) = 0 OR NOT array_size({names}) <=> array_size({counts})",
        f"array_size(array_distinct({names})) <> array_size({names})",
        f"exists({names}, z -> z IS NULL OR {no_name('z')})",
        f"exists({counts}, z -> z IS NULL OR z < 1 OR z > {MAX_PARTITIONS})",
    ]
    return f"NOT ({names} IS NULL AND {counts} IS NULL) AND ({' OR '.join(tests)})"


def _no_copies(operators: str, partitions: str, records: str) -> str:
    """True for unequal numbers of the three, invalid names, numbers out of range, and a key group that comes twice."""
    columns = (operators, partitions, records)
    tests = [
        f"array_size({partitions}) = 0",
        *(f"NOT array_size({column}) <=> array_size({partitions})" for column in (operators, records)),
        f"exists({operators}, z -> z IS NULL OR {no_name('z')})",
        f"exists({partitions}, z -> z IS NULL OR z < 0 OR z > {MAX_PARTITIONS})",
        f"exists({records}, z -> z IS NULL OR z < 0 OR z > {MAX_RECORDS})",
        f"array_size(array_distinct(arrays_zip({operators}, {partitions}))) <> array_size({partitions})",
    ]
    absent = " AND ".join(f"{column} IS NULL" for column in columns)
    return f"NOT ({absent}) AND ({' OR '.join(tests)})"


def _any(array: str, test: str) -> str:
    return f"exists({array}, y -> {test})"


def _outside(array: str, low: float, high: float | str) -> str:
    """Also true for NaN, which Spark orders above every number."""
    return f"array_min({array}) < {low} OR array_max({array}) > {high}"


def no_name(name: str) -> str:
    """The SQL of whether a text is no name.  NULL for NULL."""
    return _unlike(name, NAME_PATTERN)


def _unlike(text: str, pattern: re.Pattern[str]) -> str:
    # \z, because $ would let a final line feed through; doubled for the SQL literal, as the quotes in it are.
    quoted = pattern.pattern.replace("'", r"\'")
    return f"NOT {text} RLIKE '^({quoted})\\\\z'"


def _not_in(x: str, family: type[StrEnum]) -> str:
    return f"{x} NOT IN ({', '.join(repr(str(member)) for member in family)})"
