"""The flights job under kill -9 in the middle of rounds, in short; `make faults` is the whole of it."""

from pathlib import Path

from rich.console import Console

from flights.faults.__main__ import run
from flights.faults.campaign import FaultSettings
from flights.faults.cases import parse_case


def test_a_broker_and_a_worker_die_in_the_middle_of_rounds_and_nothing_is_lost(tmp_path: Path) -> None:
    cases = [parse_case("broker@release"), parse_case("worker@release")]

    verdict = run(tmp_path, cases, FaultSettings(workers=2, key_groups=16, rate=100.0), Console(quiet=True))

    assert verdict.broken == []
    assert [cost.suffered.case for cost in verdict.costs] == cases
    assert verdict.flights > 1000
