"""Hosts and zones with their workers, and maintenance."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.console.fleet import NOW, Fleet, status_record
from tests.console.setup import SECRETS, Setup
from tests.console.setup import get as answer
from trimtab_console.cluster_view import bars, host_rows, zone_rows
from trimtab_protocol.messages.intents import Drain
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.report import WorkerState

FLEET = Fleet(workers=12, key_groups=64)
STATUS = FLEET.status()
"""Four workers to a host, each host in a zone of its own."""


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def get(setup: Setup, path: str) -> Any:
    return answer(setup.client, path, headers={"authorization": f"Bearer {SECRETS['vera']}"})


def test_a_host_has_the_sums_over_its_workers() -> None:
    away = replace(STATUS.nodes[4], state=WorkerState.AWAY)
    status = replace(STATUS, nodes=(*STATUS.nodes[:4], away, *STATUS.nodes[5:]))
    found = [(row.host, row.workers, row.running, row.draining, row.key_groups) for row in host_rows(status, ())]
    assert found == [("host-0000", 4, 4, 0, 20), ("host-0001", 4, 3, 1, 20), ("host-0002", 4, 4, 0, 20)]


def test_a_host_that_does_not_report_is_there_and_its_values_are_unknown() -> None:
    (row, *_) = host_rows(replace(STATUS, hosts=STATUS.hosts[1:]), ())
    assert (row.host, row.workers, row.demand_pct, row.zone) == ("host-0000", 4, None, None)


def test_the_end_of_a_maintenance_is_the_last_of_its_drains() -> None:
    def drain(worker: int, until: float | None) -> Drain:
        host = None if until is None else HostId("host-0001")
        return Drain(worker=FLEET.worker(worker), by="ann", at=NOW, reason="test", until=until, host=host)

    rows = host_rows(STATUS, (drain(4, NOW + 60.0), drain(5, NOW + 90.0), drain(8, None)))
    assert [row.maintenance_until for row in rows] == [None, NOW + 90.0, None]


def test_zones_have_the_sums_over_their_running_workers() -> None:
    away = replace(STATUS.nodes[0], state=WorkerState.AWAY)
    unknown = replace(STATUS.nodes[1], used_pct=None, demand_pct=None)
    hosts = tuple(replace(row, zone=None if row.host == "host-0002" else row.zone) for row in STATUS.hosts)
    found = zone_rows(replace(STATUS, nodes=(away, unknown, *STATUS.nodes[2:]), hosts=hosts))
    told = [(row.zone, row.hosts, row.workers, row.running, row.capacity_cores, row.unknown) for row in found]
    assert told == [("zone-a", 1, 4, 3, 3.0, 1), ("zone-b", 1, 4, 4, 4.0, 0), (None, 1, 4, 4, 4.0, 0)]
    used = [row.used_pct for row in STATUS.nodes[2:4] if row.used_pct is not None]
    assert found[0].used_cores == pytest.approx(sum(used) / 100.0)


def test_where_no_agent_names_its_zone_there_are_none() -> None:
    status = replace(STATUS, hosts=tuple(replace(row, zone=None) for row in STATUS.hosts))
    assert zone_rows(status) == []
    assert set(bars(status, None, 100).zone) == {None}


def test_bars_are_ordered_by_zone() -> None:
    fleet = Fleet(workers=8, key_groups=64)
    found = bars(fleet.status(), None, 100)
    assert list(found.zone) == sorted(zone for zone in found.zone if zone)
    assert list(found.host[:3]) == ["host-0000", "host-0003", "host-0006"]


def test_the_api_finds_hosts_by_name_zone_and_demand(setup: Setup) -> None:
    status = setup.watch.known.statuses[b"controller"]
    hosts = tuple(replace(row, demand_pct=None if at == 1 else 50.0 + at) for at, row in enumerate(status.hosts))
    setup.watch.take(status_record(replace(status, hosts=hosts, at=NOW)))
    by_demand = [row["host"] for row in get(setup, "hosts?order=demand")["items"]]
    assert by_demand == ["host-0003", "host-0002", "host-0000", "host-0001"]
    assert [row["host"] for row in get(setup, "hosts?zone=zone-a")["items"]] == ["host-0000", "host-0003"]
    assert [row["host"] for row in get(setup, "hosts?name=002")["items"]] == ["host-0002"]
    assert [row["zone"] for row in get(setup, "zones")["items"]] == ["zone-a", "zone-b", "zone-c"]


def test_a_maintenance_begins_and_ends_and_both_are_told(setup: Setup) -> None:
    host = {"host": "host-0001"}
    dry = setup.ask("maintenance", {**host, "for_s": 7200.0, "dry_run": True})
    assert dry.json()["text"].startswith("maintenance of host-0001 for 2 h 0 min: 1 worker will be drained")
    assert setup.topic.written == []
    assert setup.ask("maintenance", {**host, "for_s": 7200.0}, key="k1").status_code == 200
    assert get(setup, "hosts?name=0001")["items"][0]["maintenance_until"] == NOW + 7200.0
    (told,) = [row for row in get(setup, "intents")["items"] if row["host"] == "host-0001"]
    assert (told["kind"], told["about"], told["until"]) == ("drain", "orders-1", NOW + 7200.0)
    assert setup.ask("maintenance", {**host, "for_s": None}, key="k2").status_code == 200
    assert get(setup, "hosts?name=0001")["items"][0]["maintenance_until"] is None


def test_a_zone_is_drained_by_its_name(setup: Setup) -> None:
    found = setup.ask("drain", {"worker": "zone:zone-b", "dry_run": True}).json()
    assert found["intents"] == ["drain/orders-1"]
