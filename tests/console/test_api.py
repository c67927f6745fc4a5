"""The API on messages as they are on the topics."""

from dataclasses import asdict, replace

import pytest
from fastapi.testclient import TestClient

from tests.console.fleet import APP, NOW, OPERATORS, TOPICS, Fleet, status_record, watching
from tests.console.setup import PROBLEM, client_of, get
from tests.kafka_record import Record
from trimtab_console.guard import CSP
from trimtab_console.reader import newest_windows
from trimtab_console.watch import Watch
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.refused_hosts import RefusedHost, RefusedHosts

FLEET = Fleet(workers=4, key_groups=64)


@pytest.fixture(scope="module")
def client() -> TestClient:
    return client_of(watching(FLEET, windows=3))


def test_the_cluster_says_how_it_stands(client: TestClient) -> None:
    found = get(client, "cluster")
    assert (found["state"], found["runbook"], found["read"]) == ("acting", "over_capacity", True)
    assert found["controllers"] == [{"name": "ctl-1:2817", "leads": True}]
    totals = found["totals"]
    assert (totals["workers"], totals["running"], totals["hosts"], totals["unknown"]) == (4, 4, 4, 0)
    assert totals["used_cores"] == pytest.approx(sum(FLEET.uses()) / 100)


def test_a_cluster_of_which_nothing_is_known_is_no_error() -> None:
    client = client_of(Watch(TOPICS, lambda: NOW))
    assert get(client, "cluster")["state"] is None
    response = client.get("/api/v1/workers")
    assert (response.status_code, response.headers["content-type"]) == (503, PROBLEM)
    assert response.json()["detail"] == "no controller has reported on this cluster yet"


def test_an_unknown_value_is_null_and_never_zero() -> None:
    status = FLEET.status()
    nodes = (replace(status.nodes[0], used_pct=None, demand_pct=None, load_pct=None), *status.nodes[1:])
    watch = watching(FLEET)
    watch.take(status_record(replace(status, nodes=nodes)))
    client = client_of(watch)
    assert get(client, "workers/orders-0")["used_pct"] is None
    assert get(client, "workers/bars")["load"][0] is None
    assert get(client, "cluster")["totals"]["unknown"] == 1
    first = get(client, "workers?order=load")["items"]
    assert first[-1]["worker"] == "orders-0"


def test_a_silent_controller_is_said() -> None:
    watch = Watch(TOPICS, lambda: NOW)
    watch.take(status_record(replace(FLEET.status(), at=NOW - 60)))
    assert (get(client_of(watch), "cluster")["state"], get(client_of(watch), "cluster")["runbook"]) == (
        "silent", "no_leader",
    )  # fmt: skip


def test_pages_are_parts_of_the_whole(client: TestClient) -> None:
    whole = get(client, "workers")["items"]
    part = get(client, "workers?offset=1&limit=2")
    assert (part["items"], part["total"], part["offset"]) == (whole[1:3], 4, 1)


def test_many_workers_become_few_bars_with_the_highest_of_each() -> None:
    fleet = Fleet(workers=1000, key_groups=2000)
    client = client_of(watching(fleet))
    found = get(client, "workers/bars?most=100")
    assert (found["total"], found["workers_per_bar"], sum(found["count"])) == (1000, 10, 1000)
    assert max(found["load"]) == pytest.approx(max(fleet.loads()))
    known = [row for row in fleet.status().nodes if row.used_pct is not None]
    used = sum(row.used_pct * row.capacity for row in known if row.used_pct is not None)
    assert found["mean_use"] == pytest.approx(used / sum(row.capacity for row in known))


def test_key_groups_of_a_map_are_those_of_the_window(client: TestClient) -> None:
    found = get(client, f"apps/{APP}/operators/{OPERATORS[0]}/map")
    rows = get(client, f"apps/{APP}/operators/{OPERATORS[0]}/key-groups")["items"]
    assert found["peak"] == [None if row["load_pct"] is None else round(row["load_pct"], 3) for row in rows]
    assert [found["workers"][at] for at in found["worker"]] == [row["worker"] for row in rows]
    assert found["peak"][0] is not None or rows[0]["load_pct"] is None


def test_cells_of_a_map_have_the_hottest_of_their_key_groups(client: TestClient) -> None:
    found = get(client, f"apps/{APP}/operators/{OPERATORS[0]}/map?cells=5")
    assert found["last"][-1] == found["key_groups"] - 1
    assert found["first"][1:] == [last + 1 for last in found["last"][:-1]]
    rows = get(client, f"apps/{APP}/operators/{OPERATORS[0]}/key-groups")["items"]
    assert (found["per_cell"], found["first"]) == (7, [0, 7, 14, 21, 28])
    for place, first in enumerate(found["first"]):
        known = [row for row in rows[first : first + 7] if row["load_pct"] is not None]
        hottest = max(known, key=lambda row: row["load_pct"])
        assert found["hottest"][place] == hottest["partition"]
        assert found["peak"][place] == pytest.approx(hottest["load_pct"], abs=0.001)
        assert found["mean"][place] == pytest.approx(sum(row["load_pct"] for row in known) / len(known), abs=0.001)


def test_the_placement_is_read_from_any_place(client: TestClient) -> None:
    whole = get(client, f"apps/{APP}/placement")
    part = get(client, f"apps/{APP}/placement?offset=30&limit=5")
    assert (whole["total"], whole["epoch"]) == (64, "3.14")
    assert part["items"] == whole["items"][30:35]
    assert part["items"][2] == {
        "operator": "by-product", "partition": 0, "owner": "orders-0", "standbys": ["orders-1"],
    }  # fmt: skip


def test_a_plan_has_its_moves_and_its_pauses(client: TestClient) -> None:
    found = get(client, "plans")["items"]
    assert [(row["plan"], row["ended_at"] is None) for row in found] == [("3.15", True), ("3.14", False)]
    assert (found[1]["pause_median_s"], found[1]["pause_longest_s"]) == (0.2, 0.31)
    moves = get(client, "plans/3.15/moves")
    assert moves["total"] == 3
    assert moves["items"][0] == {
        "id": "3.15-0", "key_groups": ["orders/by-customer/0"], "source": "orders-1", "target": "orders-2",
        "phase": "waiting", "state_bytes": 64_000_000, "pause_s": None, "detail": None,
    }  # fmt: skip


def test_the_history_has_a_point_per_window_newest_first(client: TestClient) -> None:
    found = get(client, f"apps/{APP}/history")["items"]
    assert [row["at"] for row in found] == [NOW - 4, NOW - 14, NOW - 24, NOW - 34]
    assert found[0]["bound"] == 1.2


def test_runbooks_are_served_and_nothing_else_of_the_disk(client: TestClient) -> None:
    assert get(client, "runbooks/paused")["text"].startswith("# paused")
    for name in ("..%2FREADME", "%2e%2e", "none"):
        assert client.get(f"/api/v1/runbooks/{name}").status_code == 404


@pytest.mark.parametrize("path", ["apps/none", "workers/none", "plans/none", "apps/none/placement", "nothing"])
def test_what_is_not_there_is_a_problem_document(client: TestClient, path: str) -> None:
    response = client.get(f"/api/v1/{path}")
    assert (response.status_code, response.headers["content-type"]) == (404, PROBLEM)
    assert response.json().keys() == {"type", "title", "status", "detail"}


def test_a_value_out_of_range_is_a_problem_document(client: TestClient) -> None:
    response = client.get("/api/v1/workers?limit=1000000")
    assert (response.status_code, response.headers["content-type"]) == (422, PROBLEM)
    assert response.json()["detail"] == "query.limit: Input should be less than or equal to 1000"


def test_a_message_that_cannot_be_read_is_counted_and_changes_nothing_else() -> None:
    watch = watching(FLEET)
    before = watch.known
    watch.take(Record(TOPICS.status, b"{}", b"controller"))
    watch.take(Record(TOPICS.intents, b"no json", b"pause"))
    assert (watch.known.statuses, watch.known.intents) == (before.statuses, before.intents)
    found = get(client_of(watch), "cluster")["rejected"]
    assert found == {f"{TOPICS.status}.missing_field": 1, f"{TOPICS.intents}.malformed": 1}


def test_the_hosts_that_refused_messages_name_are_told() -> None:
    watch = watching(FLEET)
    assert get(client_of(watch), "cluster")["refused_hosts"] == {"worst": [], "more": 0}
    row = RefusedHost(topic=TOPICS.reports, host=HostId("h9"), fault="unknown_host", messages=3, at=NOW)
    watch.take(status_record(replace(FLEET.status(), refused_hosts=RefusedHosts(worst=(row,), more=2))))
    assert get(client_of(watch), "cluster")["refused_hosts"] == {"worst": [asdict(row)], "more": 2}


def test_every_answer_forbids_what_a_console_does_not_need(client: TestClient) -> None:
    for path in ("/", "/api/v1/cluster", "/none"):
        headers = client.get(path).headers
        assert (headers["content-security-policy"], headers["x-content-type-options"]) == (CSP, "nosniff")
    assert "unsafe" not in CSP


@pytest.mark.parametrize(
    ("host", "code"),
    [("localhost:8750", 200), ("127.0.0.1", 200), ("[::1]:8750", 200), ("ops.example.com", 200), ("evil.example", 421)],
)
def test_only_known_names_are_answered(host: str, code: int) -> None:
    client = client_of(watching(FLEET), "ops.example.com")
    assert client.get("/api/v1/cluster", headers={"host": host}).status_code == code


def test_what_another_site_asks_for_is_refused() -> None:
    client = client_of(watching(FLEET))
    elsewhere = {"sec-fetch-site": "cross-site"}
    assert client.get("/api/v1/cluster", headers=elsewhere).status_code == 403
    link = {**elsewhere, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=link).status_code == 200, "a link in an alert"
    assert client.get("/", headers={**link, "sec-fetch-dest": "iframe"}).status_code == 403


def test_without_a_token_file_nobody_changes_anything() -> None:
    client = client_of(watching(FLEET))
    response = client.put("/api/v1/intents", json={})
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET, POST")
    ours = {"x-requested-with": "trimtab"}
    response = client.post("/api/v1/intents/pause", json={"reason": "test"}, headers=ours)
    assert (response.status_code, response.headers["content-type"]) == (403, PROBLEM)
    assert "token file" in response.json()["detail"]
    found = get(client, "session")
    assert (found["role"], found["login"], found["may_change"]) == ("viewer", False, False)


# ---- which windows are read when the console starts


def test_of_many_windows_the_last_two_are_read_with_everything_else() -> None:
    status = Record("status")
    windows = [
        Record("snapshots", headers=[("snapshot", name), ("chunk", b"0")])
        for name in (b"1", b"1", b"2", b"3", b"3", b"4")
    ]
    found = list(newest_windows([windows[0], status, *windows[1:]], "snapshots"))  # type: ignore[list-item]
    assert found == [status, *windows[3:]]
