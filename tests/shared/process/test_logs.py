"""Log lines: one line each, whatever is in them."""

import logging
import sys

from trimtab_process.logs import KeyValueFormatter, PlainFormatter, fields


def line(message: str, **extra: object) -> str:
    record = logging.LogRecord("agent", logging.WARNING, __file__, 1, message, (), None)
    record.created, record.msecs = 1_700_000_000.25, 250
    record.__dict__.update(fields(**extra)["extra"])
    return KeyValueFormatter().format(record)


def test_plain_values_stand_as_they_are_and_others_are_quoted() -> None:
    found = line(
        "worker connected", worker="w0", cores=0.5, text='a "b"\nc', empty="", pair="a=b", steering=True, absent=None
    )

    assert found == (
        'ts=2023-11-14T22:13:20.250Z level=warning event="worker connected" worker=w0 cores=0.5 '
        'text="a \\"b\\"\\nc" empty="" pair="a=b" steering=true'
    )


def test_a_traceback_stays_on_the_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("agent", logging.ERROR, __file__, 1, "fault", (), sys.exc_info())

    assert "\n" not in KeyValueFormatter().format(record)
    assert "ValueError: two\\nlines" in KeyValueFormatter().format(record)


def test_nothing_that_is_logged_begins_another_line() -> None:
    evil = "a\n2026 WARNING b\u2028c\x85d\x9b2J\u202e"
    try:
        raise ValueError(evil)
    except ValueError:
        record = logging.LogRecord("controller", logging.ERROR, __file__, 1, evil, (), sys.exc_info())
    lines = PlainFormatter().format(record).splitlines()
    assert lines[0].endswith(r" ERROR a\u000a2026 WARNING b\u2028c\u0085d\u009b2J\u202e")
    assert all(line.startswith("  ") for line in lines[1:])
    assert len(KeyValueFormatter().format(record).splitlines()) == 1
