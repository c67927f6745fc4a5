"""What operators ask over the API: what is written, how often, and what is refused."""

import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.console.fleet import APP, NOW, TOPICS, Fleet, status_record
from tests.console.setup import FLEET, Setup, bearer, serving, told
from tests.console.told import explainer_of
from tests.kafka_record import Record
from trimtab_console import desk as desk_module
from trimtab_console.desk import KEPT_S, MAX_KEPT, AnotherRequest, Desk, Once, StillRunning
from trimtab_console.guard import MAX_BODY, MAX_LONG_BODY
from trimtab_controller.decider.window.view import SmoothedView
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.intents import MAX_MOVES, Drain, Intent, MoveKeyGroups, Pause, TakenBack
from trimtab_protocol.messages.names import OperatorId
from trimtab_protocol.messages.status import HoldStatus

LIMIT_S = 60.0


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_a_change_is_written_once_in_the_name_of_its_token(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        response = setup.ask("drain", {"worker": "orders-1", "reason": "kernel update"}, key="k1")
    assert response.status_code == 200, response.text
    assert setup.topic.written == [
        ("drain/orders-1", Drain(worker=FLEET.worker(1), by="ann", at=NOW, reason="kernel update"))
    ]
    found = response.json()
    assert (found["written"], found["intents"], found["by"], found["caveats"]) == (True, ["drain/orders-1"], "ann", [])
    assert found["text"].startswith("orders-1 will be drained")
    (line,) = [row for row in caplog.records if row.getMessage() == "change"]
    audit = line.fields  # type: ignore[attr-defined]
    assert audit == {
        "who": "ann", "address": "testclient", "action": "drain", "arguments": '{"worker":"orders-1"}',
        "reason": "kernel update", "key": "k1", "result": "written", "text": found["text"],
    }  # fmt: skip


def test_a_dry_run_tells_and_writes_nothing(setup: Setup) -> None:
    pause = Pause(by="bob", at=NOW, reason="lunch")
    setup.watch.take(Record(TOPICS.intents, encoded(pause), pause.key.encode()))
    response = setup.ask("drain", {"worker": "orders-1", "dry_run": True})
    assert response.json()["caveats"] == ["but the controller is paused: the drain starts after `trimtab resume`"]
    assert (response.json()["written"], setup.topic.written) == (False, [])
    found = setup.client.get("/api/v1/cluster", headers=bearer("vera")).json()
    assert (found["state"], found["paused"]) == ("paused", "paused by bob: lunch"), "no status tells of it yet"


def test_the_same_key_gives_the_same_answer_and_writes_nothing_again(setup: Setup) -> None:
    first = setup.ask("pause", {}, key="k1")
    assert setup.ask("pause", {}, key="k1").json() == first.json()
    assert len(setup.topic.written) == 1
    assert "of another request" in told(setup.ask("pause", {"reason": "other"}, key="k1"), 422)
    assert "of another request" in told(setup.ask("resume", {}, key="k1"), 422)
    assert len(setup.topic.written) == 1
    assert setup.ask("pause", {}, key="k2").status_code == 200
    assert len(setup.topic.written) == 2


def test_a_refusal_is_kept_too(setup: Setup) -> None:
    refused = told(setup.ask("forget", {"worker": "orders-1"}, key="k1"), 409)
    assert refused == "worker orders-1 still runs: orders-1 on host-0001; stop it first"
    setup.watch.take(status_record(replace(FLEET.status(), nodes=(), at=NOW)))
    assert told(setup.ask("forget", {"worker": "orders-1"}, key="k1"), 409) == refused
    assert setup.ask("forget", {"worker": "orders-1"}, key="k2").json()["written"]


def test_what_was_not_written_may_be_tried_again_with_its_key(setup: Setup) -> None:
    setup.topic.fault = "not confirmed by Kafka at b:9092: Broker: Topic authorization failed"
    assert told(setup.ask("pause", {}, key="k1"), 503) == setup.topic.fault
    setup.topic.fault = None
    assert setup.ask("pause", {}, key="k1").json()["written"]
    assert len(setup.topic.written) == 1


def test_a_change_is_found_by_the_next_one(setup: Setup) -> None:
    assert setup.ask("pause", {}, key="1").json()["written"]
    found = setup.ask("resume", {}, key="2").json()
    assert (found["text"], found["intents"]) == ("the controller decides again", ["pause"])
    idle = setup.ask("resume", {}, key="3").json()
    assert (idle["written"], idle["intents"]) == (False, [])
    assert [intent for _, intent in setup.topic.written] == [
        Pause(by="ann", at=NOW, reason="test"),
        TakenBack(by="ann", at=NOW, reason="test"),
    ]


@pytest.mark.parametrize(
    ("what", "body", "keys"),
    [
        ("undrain", {"worker": "orders-0"}, ["drain/orders-0"]),
        ("stop", {}, ["stop"]),
        ("stop", {"app": APP, "pause": True}, ["pause", f"stop/{APP}"]),
        ("scale", {"app": APP, "workers": 3}, [f"scale/{APP}"]),
        ("scale", {"app": APP, "workers": None}, []),
        ("forget", {"app": "gone"}, ["forget/app/gone"]),
        ("forget", {"worker": "gone"}, ["forget/worker/gone"]),
    ],
)
def test_each_action_writes_its_intents(setup: Setup, what: str, body: dict[str, object], keys: list[str]) -> None:
    found = setup.ask(what, body, key="k")
    assert (found.status_code, found.json()["intents"]) == (200, keys), found.text
    assert [key for key, _ in setup.topic.written] == keys


def test_a_hold_is_accepted_by_its_id(setup: Setup) -> None:
    assert "not on hold" in told(setup.ask("accept-journal", {}, key="1"), 409)
    held = replace(FLEET.status(), hold=HoldStatus(id="h-1", text="the journal is lost"), at=NOW)
    setup.watch.take(status_record(held))
    assert setup.client.get("/api/v1/cluster", headers=bearer("vera")).json()["hold_id"] == "h-1"
    assert "expected h-0" in told(setup.ask("accept-journal", {"hold": "h-0"}, key="2"), 409)
    assert setup.ask("accept-journal", {"hold": "h-1"}, key="3").json()["intents"] == ["accept-journal"]


@pytest.mark.parametrize(
    ("what", "body", "key", "code", "text"),
    [
        ("drain", {"worker": "nobody"}, "k", 404, "no worker or host 'nobody' reports; there are orders-0"),
        ("drain", {"worker": "a/b"}, "k", 422, "found 'a/b', expected a worker's name"),
        ("drain", {}, "k", 422, "body.worker: Field required"),
        ("drain", {"worker": "orders-1", "reason": ""}, "k", 422, "body.reason: String should have at least 1"),
        ("drain", {"worker": "orders-1", "reason": "x" * 2_001}, "k", 422, "body.reason"),
        ("drain", {"worker": "orders-1", "wroker": "x"}, "k", 422, "body.wroker: Extra inputs"),
        ("drain", {"worker": "orders-1"}, None, 400, "found no header Idempotency-Key"),
        ("drain", {"worker": "orders-1"}, "k" * 201, 422, "header.Idempotency-Key"),
        ("scale", {"app": APP, "workers": 0}, "k", 422, "body.workers"),
        ("scale", {"app": APP}, "k", 422, "body.workers: Field required"),
        ("forget", {}, "k", 422, "expected either app or worker"),
        ("forget", {"app": "a", "worker": "b"}, "k", 422, "expected either app or worker"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    setup: Setup, what: str, body: dict[str, object], key: str | None, code: int, text: str
) -> None:
    assert text in told(setup.ask(what, body, key), code)
    assert setup.topic.written == []


def test_while_the_state_is_not_known_nothing_is_changed(setup: Setup) -> None:
    setup.watch.set_reading(read=True, fault="no broker")
    assert "not known now: no broker" in told(setup.ask("pause", {}, key="1"), 503)
    setup.watch.set_reading(read=False, fault=None)
    assert "still being read" in told(setup.ask("pause", {"dry_run": True}), 503)
    assert setup.topic.written == []


def test_a_body_has_a_length_and_a_limit(setup: Setup) -> None:
    long = setup.ask("pause", {"reason": "x" * 40_000}, key="k")
    assert "found a body of 400" in told(long, 413)
    assert "bytes, expected at most 32000" in told(long, 413)
    response = setup.client.post("/api/v1/intents/pause", content=iter([b"{}"]), headers=bearer("ann"))
    assert "Content-Length" in told(response, 411)


def test_so_many_changes_at_the_same_time_and_no_more(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "AT_ONCE", 1)
    inside, go = threading.Event(), threading.Event()
    store = setup.topic.write

    def slow(records: Sequence[tuple[str, Intent | None]]) -> int:
        inside.set()
        assert go.wait(LIMIT_S)
        return store(records)

    desk = Desk(setup.watch, slow, lambda: NOW)
    setup.client.app.state.source = replace(setup.client.app.state.source, desk=desk)  # type: ignore[attr-defined]
    answers: list[Any] = []
    first = threading.Thread(target=lambda: answers.append(setup.ask("pause", {}, key="1")))
    first.start()
    assert inside.wait(LIMIT_S)
    assert "still being carried out" in told(setup.ask("pause", {}, key="1"), 409)
    assert "carried out already" in told(setup.ask("pause", {}, key="2"), 503)
    go.set()
    first.join(LIMIT_S)
    assert answers[0].json()["written"]
    assert setup.ask("pause", {}, key="2").json()["written"]


def test_keys_are_forgotten_after_their_time_or_when_there_are_too_many() -> None:
    now = [NOW]
    once: Once[str] = Once(lambda: now[0])
    for number in range(MAX_KEPT + 5):
        assert once.begin("ann", str(number), b"x") is None
        once.end("ann", str(number), f"answer {number}")
    assert len(once) == MAX_KEPT
    assert once.begin("ann", str(MAX_KEPT), b"x") == f"answer {MAX_KEPT}"
    assert once.begin("bob", str(MAX_KEPT), b"y") is None, "another sender's key is another key"
    with pytest.raises(StillRunning):
        once.begin("bob", str(MAX_KEPT), b"y")
    with pytest.raises(AnotherRequest):
        once.begin("bob", str(MAX_KEPT), b"z")
    now[0] += KEPT_S + 1
    assert once.begin("ann", str(MAX_KEPT), b"x") is None
    assert len(once) == 2


def test_the_description_of_the_api_has_every_change(setup: Setup) -> None:
    document = setup.client.get("/api/v1/openapi.json").json()
    changes = {path: methods["post"] for path, methods in document["paths"].items() if "/intents/" in path}
    assert {path.rpartition("/")[2] for path in changes} == {
        "drain", "undrain", "pause", "resume", "stop", "scale", "forget", "accept-journal",
        "approve", "reject", "move", "undo", "maintenance", "rolling-restart", "add-rule", "remove-rule",
    }  # fmt: skip
    for path, post in changes.items():
        assert set(post["responses"]) >= {"200", "400", "401", "403", "404", "409", "422", "503"}, path
        assert [each["name"] for each in post["parameters"] if each["in"] == "header"] == ["Idempotency-Key"], path
        assert {name for each in post["security"] for name in each} == {"HTTPBearer", "APIKeyCookie"}, path
    assert "reason" in json.dumps(document["components"]["schemas"]["Asking"])


def test_the_workers_of_an_app_are_restarted_and_that_is_cancelled(setup: Setup) -> None:
    status = setup.watch.known.statuses[b"controller"]
    assert "no agent can start a worker of orders" in told(setup.ask("rolling-restart", {"app": APP}, key="k0"), 409)
    nodes = tuple(replace(row, startable=True) for row in status.nodes)
    setup.watch.take(status_record(replace(status, nodes=nodes, at=NOW)))
    dry = setup.ask("rolling-restart", {"app": APP, "dry_run": True}).json()
    assert dry["text"].startswith("3 workers of orders on 3 hosts will be restarted, host by host")
    assert dry["caveats"] == ["but without orders-0: operators drain them"]
    assert setup.topic.written == []
    assert setup.ask("rolling-restart", {"app": APP}, key="k1").json()["written"]
    assert "is being restarted already" in told(setup.ask("rolling-restart", {"app": APP}, key="k2"), 409)
    assert [(row["about"], row["workers"]) for row in restarts_of(setup)] == [(APP, 3)]
    assert setup.ask("rolling-restart", {"app": APP, "cancel": True}, key="k3").json()["written"]
    assert restarts_of(setup) == []


def restarts_of(setup: Setup) -> list[dict[str, Any]]:
    rows = setup.client.get("/api/v1/intents", headers=bearer("ann")).json()["items"]
    return [row for row in rows if row["kind"] == "rolling restart"]


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("maintenance", '"host": "host-0001", "for_s": NaN'),
        ("maintenance", '"host": "host-0001", "for_s": Infinity'),
        ("maintenance", '"host": "host-0001", "for_s": -1'),
        ("scale", '"app": "orders", "workers": 1e400'),
        ("scale", '"app": "orders", "workers": 10001'),
        ("move", '"key_groups": [], "worker": "orders-1"'),
        ("add-rule", '"name": "a", "kind": "freeze", "until": NaN'),
        ("add-rule", '"name": "a", "kind": "freeze", "until": Infinity'),
        ("add-rule", '"name": "a", "kind": "freeze", "until": 1e17'),
    ],
)
def test_numbers_that_make_no_sense_are_refused(setup: Setup, action: str, body: str) -> None:
    response = setup.client.post(
        f"/api/v1/intents/{action}",
        content=f'{{{body}, "reason": "x"}}',
        headers={**bearer("ann"), "idempotency-key": "k", "content-type": "application/json"},
    )
    assert told(response, 422)
    assert setup.topic.written == []


def test_a_text_that_is_no_unicode_is_refused(setup: Setup) -> None:
    for body in ('{"reason": "\\ud800"}', '{"reason": "x", "worker": "\\ud800"}', "no json", "[]"):
        response = setup.client.post(
            "/api/v1/intents/drain",
            content=body,
            headers={**bearer("ann"), "idempotency-key": "k", "content-type": "application/json"},
        )
        assert told(response, 422)
    assert setup.topic.written == []


def post(url: str, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(url, json.dumps({"reason": "test", **body}).encode(), method="POST")
    for name, value in {**bearer("ann"), "content-type": "application/json", "idempotency-key": "k"}.items():
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_largest_request_to_move_goes_through_the_server_and_no_larger_one(tmp_path: Path) -> None:
    fleet = Fleet(workers=4, key_groups=2_400, operators=(OperatorId(f"by-customer-{'x' * 100}"),))
    setup = Setup(tmp_path, fleet)
    view = explainer_of(setup.watch, fleet).looked().known.views[APP]
    assert isinstance(view, SmoothedView)
    names = [str(view.owned[row].key_group) for row in range(MAX_MOVES + 1)]
    with serving(setup.client.app) as address:
        move = f"{address}/api/v1/intents/move"
        body: dict[str, object] = {"key_groups": names[:MAX_MOVES], "worker": view.workers[0].id}
        assert 100_000 < len(json.dumps(body)) < MAX_LONG_BODY
        code, found = post(move, body)
        assert (code, found.get("written")) == (200, True), found
        [(_, intent)] = setup.topic.written
        assert isinstance(intent, MoveKeyGroups)
        assert {str(each.key_group) for each in intent.moves} == set(names[:MAX_MOVES])
        code, found = post(move, {**body, "key_groups": names})
        assert code == 422
        assert "at most 1000 items after validation, not 1001" in found["detail"]
        code, found = post(move, {**body, "worker": "w" * MAX_LONG_BODY})
        assert (code, found["detail"].partition(" bytes, ")[2]) == (413, f"expected at most {MAX_LONG_BODY}")
        code, found = post(f"{address}/api/v1/intents/drain", {"worker": "w" * MAX_BODY})
        assert (code, found["detail"].partition(" bytes, ")[2]) == (413, f"expected at most {MAX_BODY}")
    assert len(setup.topic.written) == 1


def test_the_line_of_the_log_has_a_limit(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"{APP}/by-customer/{at}" for at in range(500)]
    with caplog.at_level(logging.INFO):
        setup.ask("move", {"key_groups": names, "worker": "nobody"}, key="k")
    (line,) = [row for row in caplog.records if row.getMessage() == "change"]
    told_of = line.fields["arguments"]  # type: ignore[attr-defined]
    assert told_of.startswith('{"key_groups":["orders/by-customer/0"')
    assert len(told_of) < 5_100
    assert told_of.endswith(" characters)")
