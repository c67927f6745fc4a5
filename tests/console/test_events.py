"""Events, the reasons of plans, and why a key group is where it is: by the API, from messages as on the topics."""

import subprocess
import sys
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from tests.console.fleet import APP, NOW, OPERATORS, TOPICS, Fleet, watching
from tests.console.setup import client_of, get
from tests.console.told import CONFIGURATION, PLAN, event_record, events, explainer_of, read, tell
from tests.kafka_record import Record
from tests.paths import ROOT, python_path
from trimtab_console import events as kept_events
from trimtab_console.watch import Watch
from trimtab_console.why import KEPT_S, CannotSayError, Explainer, with_settings
from trimtab_controller.intents.plans import Looked
from trimtab_protocol.messages.events import EventKind
from trimtab_protocol.messages.names import KeyGroup
from trimtab_protocol.messages.status import BalanceStatus

FLEET = Fleet(workers=4, key_groups=64)
TOLD = events(FLEET)


def watch_of() -> Watch:
    watch = watching(FLEET)
    tell(watch, FLEET)
    return watch


@pytest.fixture(scope="module")
def client() -> TestClient:
    watch = watch_of()
    return client_of(watch, explainer=explainer_of(watch, FLEET))


def test_events_come_newest_first(client: TestClient) -> None:
    found = get(client, "events")
    assert found["total"] == len(TOLD)
    assert [row["id"] for row in found["items"]] == [event.id for event in reversed(TOLD)]
    assert {row["kind"] for row in found["items"]} == set(EventKind), "one of each kind, so each is shown"
    begun = next(row for row in found["items"] if row["phase"] == "begun" and row["kind"] == "plan")
    assert (begun["moves"], begun["before"], begun["planned"], begun["measured"]) == (2, 8.6, 0.9, None)


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("kind=intent", ["intent"]),
        (f"plan={PLAN}", ["plan", "plan", "move", "plan"]),
        (f"since={NOW - 30}", ["size", "scaling"]),
        (f"app={APP}&kind=decision", ["decision"]),
        ("app=nobody", []),
        ("text=Kernel%20update", ["intent"]),
        ("limit=1&offset=1", ["scaling"]),
    ],
)
def test_events_are_chosen(client: TestClient, query: str, kinds: list[str]) -> None:
    assert [row["kind"] for row in get(client, f"events?{query}")["items"]] == kinds


def test_an_event_is_shown_once_and_one_that_cannot_be_read_not_at_all() -> None:
    watch = watch_of()
    version = watch.known.version
    watch.take(event_record(TOLD[0]))
    watch.take(Record(TOPICS.events, b"not json", b""))
    watch.take(event_record(replace(TOLD[0], id="other", cluster="elsewhere")))
    assert (watch.known.version, len(watch.events)) == (version, len(TOLD))
    late = replace(TOLD[0], id="late", at=NOW - 100)
    watch.take(event_record(late))
    assert watch.known.version > version
    assert [event.at for event in watch.events] == sorted(event.at for event in watch.events)
    watch.restart()
    assert watch.events == ()


def test_only_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_events, "MAX_EVENTS", 3)
    assert [event.id for event in watch_of().events] == [event.id for event in TOLD[-3:]]
    monkeypatch.setattr(kept_events, "MAX_EVENTS", 100)
    monkeypatch.setattr(kept_events, "MAX_BYTES", 500)
    assert 0 < len(watch_of().events) < 5


def test_a_plan_is_explained(client: TestClient) -> None:
    found = get(client, f"plans/{PLAN}/explanation")
    assert [(move["outcome"], move["warm"], move["why"]) for move in found["moves"]] == [
        ("done", "standby", "orders-2 had 80.6 %, above the mean of 73.0 %; orders-1 was a standby of it"),
        ("failed", None, "orders-3 had 78.0 %, above the mean of 73.0 %"),
    ]
    assert [(row["worker"], row["before"], row["planned"]) for row in found["loads"]] == [
        ("orders-1", 61.2, 71.9), ("orders-2", 80.6, 74.4), ("orders-3", 78.0, 73.5),
    ]  # fmt: skip
    assert [row["measured"] for row in found["loads"]] == pytest.approx([72.3, 74.8, 73.9])
    assert found["measured"] == 1.1
    assert get(client, "plans/9.9/explanation", 404)["detail"].startswith("there is no event of such a plan")


def test_why_a_key_group_is_where_it_is(client: TestClient) -> None:
    found = get(client, f"why/{APP}/{OPERATORS[0]}/1")
    assert (found["owner"], found["plan"], found["since"]) == ("orders-1", PLAN, NOW - 884)
    assert found["targets"][0]["worker"] == "orders-1"
    assert {row["worker"]: row["standby"] for row in found["targets"]}["orders-2"]
    assert found["load_distance"] == found["targets"][0]["load_distance"] > 0


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nobody/sums/1", "found no app 'nobody', there is orders"),
        (f"{APP}/{OPERATORS[0]}/32", "found no key group 32 of orders/by-customer, there are 0 to 31"),
        (f"{APP}/{OPERATORS[0]}/x", "key group: found 'orders/by-customer/x', expected app/operator/partition"),
    ],
)
def test_an_unknown_key_group_is_a_problem_that_says_what_there_is(client: TestClient, path: str, said: str) -> None:
    assert get(client, f"why/{path}", 404)["detail"] == said


@pytest.mark.parametrize("took_s", [0.0, 4 * KEPT_S])
def test_the_topics_are_read_once_for_many_requests(took_s: float) -> None:
    times: list[float] = []
    now, kept_s = [NOW], max(KEPT_S, took_s)

    def look(at: float) -> Looked:
        times.append(at)
        now[0] += took_s
        return read(FLEET)

    explainer = Explainer(watch_of(), look, lambda: now[0])
    key_group = KeyGroup(APP, OPERATORS[0], 1)
    explainer.why(key_group)
    now[0] += kept_s
    explainer.why(key_group)
    now[0] += 0.1
    explainer.why(key_group)
    assert times == [NOW, NOW + took_s + kept_s + 0.1]


def test_topics_that_cannot_be_read_are_a_problem_that_passes() -> None:
    def look(_: float) -> Looked:
        raise CannotSayError("the topics cannot be read now: no answer")

    watch = watch_of()
    client = client_of(watch, explainer=Explainer(watch, look, lambda: NOW))
    assert get(client, f"why/{APP}/{OPERATORS[0]}/1", 503)["detail"] == "the topics cannot be read now: no answer"


def test_it_is_predicted_with_the_settings_of_the_controller() -> None:
    told = BalanceStatus(smoothing=0.25, catch_up_s=60.0, max_disk=0.75, max_link=0.5)
    found = with_settings(CONFIGURATION, told).balance
    assert (found.smoothing, found.catch_up_s, found.max_disk, found.max_link) == (0.25, 60.0, 0.75, 0.5)
    assert with_settings(CONFIGURATION, None) is CONFIGURATION


WITHOUT = """
import sys
for name in ("ortools", "pymetis", "pyspark", "cronsim", "pandas", "pyarrow", "rich", "prometheus_client", "psutil"):
    sys.modules[name] = None
import trimtab_console.command
from tests.console.fleet import APP, OPERATORS, Fleet, watching
from tests.console.told import explainer_of
from trimtab_protocol.messages.names import KeyGroup
fleet = Fleet(workers=4, key_groups=64)
print(explainer_of(watching(fleet), fleet).why(KeyGroup(APP, OPERATORS[0], 1)).owner)
"""


def test_the_console_predicts_without_the_solvers_that_it_does_not_install() -> None:
    environment = {"PYTHONPATH": python_path(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.stdout, done.stderr) == ("orders-1\n", "")
