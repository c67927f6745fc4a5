"""The client against the real API, by TLS: every route and every parameter has a method, and values arrive whole."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.console.fleet import APP, CLUSTER, NOW, OPERATORS, Fleet, placement_record, status_record
from tests.console.setup import SECRETS, Setup, certificate, serving
from tests.console.told import MOVED, PLAN, events, explainer_of, tell
from trimtab_client import Access, Changed, Client, HostOrder, KeyGroupOrder, ProblemError, WorkerOrder, link
from trimtab_console.cluster_view import cluster_document, host_rows
from trimtab_console.plans import plan_document
from trimtab_controller.loop.events.explanation import explain_plan
from trimtab_protocol.console_documents import API, MAX_PAGE
from trimtab_protocol.messages.intents import Drain, Pause, Scale, TakenBack
from trimtab_protocol.messages.names import AppId, Epoch
from trimtab_protocol.messages.report import WorkerState

FOR_BROWSERS = {("post", "/session"), ("delete", "/session")}
"""A program sends its token with each request: it needs no cookie."""
BIG = Fleet(workers=2_300, key_groups=4_600)
OPERATOR = OPERATORS[0]


@dataclass
class Recorder:
    """Notes what the API is asked: method and path -> names of parameters in query and body."""

    app: ASGIApp
    asked: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    pages: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        names = self.asked.setdefault((scope["method"].lower(), scope["path"].removeprefix(API)), set())
        query = parse_qs(scope["query_string"].decode())
        names.update(query)
        self.pages += "offset" in query

        async def noted() -> Message:
            message = await receive()
            if message.get("body"):
                names.update(json.loads(message["body"]))
            return message

        await self.app(scope, noted, send)


@dataclass
class Console:
    """The console that is served, and a client of each role."""

    setup: Setup
    recorder: Recorder
    ann: Client
    vera: Client


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    folder = tmp_path_factory.mktemp("console")
    setup, files = Setup(folder, BIG), certificate(folder, "own")
    setup.watch.take(placement_record(BIG.placement()))
    tell(setup.watch, BIG)
    recorder = Recorder(setup.client.app)
    with serving(recorder, files) as address, pytest.MonkeyPatch.context() as patched:
        for limit in ("CONNECT_LIMIT_S", "ANSWER_LIMIT_S", "SILENCE_LIMIT_S"):
            patched.setattr(link, limit, 240.0)  # on a machine that is busy with others
        clients = [
            Client(Access(address=address, token=SECRETS[who], ca=files.certificate), patience_s=0)
            for who in ("ann", "vera")
        ]
        with clients[0], clients[1]:
            yield Console(setup, recorder, *clients)


def same(value: Any, expected: Any) -> bool:
    """Whether both are the same JSON: it does not tell lists from tuples."""
    return json.dumps(asdict(value)) == json.dumps(asdict(expected))


def use_everything(client: Client) -> None:
    """Each method, with each of its parameters."""
    (plan, *_) = client.plans(app=APP)
    client.cluster(), client.session(), client.app(APP), client.size(APP)
    client.headroom(APP), client.operators(APP)
    client.worker("orders-1"), client.bars(app=APP, most=40), client.plan(plan.plan), client.runbook("no_leader")
    client.key_group_map(APP, OPERATOR, cells=10), client.explanation(PLAN), client.why(APP, OPERATOR, 1)
    client.moves_by_worker(PLAN, most=3)
    for rows in (
        client.workers(app=APP, host="host-0001", state=WorkerState.RUNNING, name="ord", order=WorkerOrder.LOAD),
        client.hosts(zone="zone-a", name="host", order=HostOrder.DEMAND), client.zones(), client.rules(),
        client.pool(), client.decisions(), client.concerns(), client.intents(),
        client.apps(), client.history(APP), client.flows(APP),
        client.key_groups(APP, OPERATOR, order=KeyGroupOrder.LOAD),
        client.placement(APP, operator=OPERATOR), client.moves("3.15"), client.live(),
        client.proposals(app=APP), client.events(app=APP, kind="plan", plan=PLAN, since=NOW - 3600, text="moves"),
    ):  # fmt: skip
        assert next(rows)
    why = {"reason": "test", "dry_run": True}
    client.drain("orders-1", **why), client.undrain("orders-0", **why), client.pause(**why), client.resume(**why)
    client.stop(APP, pause=True, **why), client.scale(APP, 3, **why), client.forget_app("gone", **why)
    client.maintenance("host-0001", 3600.0, **why), client.maintenance("host-0001", None, **why)
    client.forget_worker("gone", **why), client.approve("3.16", **why), client.reject("3.16", **why)
    client.move([f"{APP}/{OPERATOR}/1"], "orders-3", **why), client.undo(PLAN, **why)
    where = {"workers": ["w*"], "hosts": ["h*"], "zones": ["z"], "priority": 3, "until": NOW + 60.0}
    client.add_rule("here", "pool", app=APP, operator=OPERATOR, key_groups="0-3", **where, **why)
    with pytest.raises(ProblemError, match="no agent can start a worker of orders"):
        client.rolling_restart(APP, **why)
    client.rolling_restart(APP, cancel=True, **why)
    with pytest.raises(ProblemError, match=r"rule licence stands in controller.toml"):
        client.remove_rule("licence", **why)
    with pytest.raises(ProblemError, match="not on hold"):
        client.accept_journal("h-1", **why)


def test_every_route_and_parameter_of_the_api_has_a_method(console: Console) -> None:
    use_everything(console.ann)
    document = console.setup.client.get(f"{API}/openapi.json").json()
    routes = {
        (method, path.removeprefix(API)): parameters(document, each)
        for path, methods in document["paths"].items()
        for method, each in methods.items()
    }
    assert routes.keys() >= FOR_BROWSERS
    patterns = {key: re.compile(re.sub(r"\{\w+\}", "[^/]+", key[1])) for key in routes}
    found: dict[tuple[str, str], set[str]] = {}
    for (method, path), names in console.recorder.asked.items():
        fitting = [key for key, pattern in patterns.items() if key[0] == method and pattern.fullmatch(path)]
        if fitting:
            found.setdefault(min(fitting, key=lambda key: key[1].count("{")), set()).update(names)
    assert found == {key: names for key, names in routes.items() if key not in FOR_BROWSERS}


def parameters(document: dict[str, Any], operation: dict[str, Any]) -> set[str]:
    names = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
    if "requestBody" in operation:
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        names |= document["components"]["schemas"][reference.rpartition("/")[2]]["properties"].keys()
    return names


def test_values_are_those_of_the_console(console: Console) -> None:
    status = BIG.status()
    assert same(console.vera.cluster(), cluster_document(CLUSTER, console.setup.watch.known, NOW))
    assert console.vera.worker("orders-1") == status.nodes[1]
    assert console.vera.app(APP) == status.apps[0]
    assert (console.vera.size(APP), console.vera.headroom(APP)) == (status.apps[0].size, status.apps[0].capacity)
    assert tuple(console.vera.hosts()) == tuple(host_rows(status, console.setup.watch.known.intents))
    assert tuple(console.vera.pool()) == status.pool
    [rule] = console.vera.rules()
    assert (rule.name, rule.kind, rule.workers, rule.by) == ("licence", "pin", ("orders-0",), None)
    assert tuple(console.vera.decisions()) == status.decisions[::-1]
    assert tuple(console.vera.concerns()) == status.concerns
    plans = {row.plan: row for row in console.vera.plans()}
    assert all(same(plans[row.plan], plan_document(row)) for row in status.rounds)
    (intent,) = console.vera.intents()
    assert (intent.kind, intent.about, intent.by, intent.reason) == ("drain", "orders-0", "ann@ops", "kernel update")
    assert [row.operator for row in console.vera.operators(APP)] == sorted(OPERATORS)
    assert console.vera.bars(most=10).workers_per_bar == 230
    assert sum(console.vera.key_group_map(APP, OPERATOR, cells=10).first) > 0
    assert "# " in console.vera.runbook("no_leader").text
    assert [(row.kind, row.phase, row.plan) for row in console.vera.events(kind="plan")] == [
        ("plan", "measured", PLAN), ("plan", "ended", PLAN), ("plan", "begun", PLAN),
    ]  # fmt: skip
    assert same(console.vera.explanation(PLAN), explain_plan(PLAN, events(BIG)))
    why = console.vera.why(APP, OPERATOR, 1)
    assert same(why, explainer_of(console.setup.watch, BIG).why(MOVED))
    assert (why.owner, why.plan, why.targets_total) == (BIG.worker(1), PLAN, BIG.workers)
    session = console.vera.session()
    assert (session.name, session.role, session.may_change) == ("vera", "viewer", False)


def test_a_list_is_read_page_by_page_and_no_further_than_asked(console: Console) -> None:
    before = console.recorder.pages
    rows = console.vera.workers(order=WorkerOrder.LOAD)
    first = next(rows)
    assert console.recorder.pages == before + 1
    names = [first.worker, *(row.worker for row in rows)]
    assert console.recorder.pages == before + 3
    assert len(names) == len(set(names)) == BIG.workers > 2 * MAX_PAGE
    loads = {row.worker: row.load_pct or 0.0 for row in BIG.status().nodes}
    assert [loads[name] for name in names] == sorted(loads.values(), reverse=True)
    assert [row.partition for row in console.vera.key_groups(APP, OPERATOR)] == list(range(2_300))
    assert len(list(console.vera.placement(APP))) == BIG.key_groups
    assert list(console.vera.workers(name="nobody")) == []


def test_pages_of_two_placements_are_not_put_together(console: Console) -> None:
    rows = console.vera.placement(APP)
    next(rows)
    console.setup.watch.take(placement_record(replace(BIG.placement(), epoch=Epoch(3, 16))))
    with pytest.raises(Changed, match=r"changed from epoch 3\.14 to 3\.16"):
        list(rows)
    assert len(list(console.vera.placement(APP))) == BIG.key_groups


def test_a_change_is_written_once_per_key_in_the_name_of_its_token(console: Console) -> None:
    written = console.setup.topic.written
    before = len(written)
    told = console.ann.drain("orders-3", reason="kernel update", dry_run=True)
    assert (told.written, told.intents, len(written)) == (False, ("drain/orders-3",), before)
    done = console.ann.drain("orders-3", reason="kernel update", key="k1")
    assert (done.written, done.by, done.text) == (True, "ann", told.text)
    assert console.ann.drain("orders-3", reason="kernel update", key="k1") == done
    drain = Drain(worker=BIG.worker(3), by="ann", at=NOW, reason="kernel update")
    assert written[before:] == [("drain/orders-3", drain)]
    assert console.ann.undrain("orders-3", reason="done").written
    assert console.ann.pause(reason="lunch").written
    assert console.ann.resume(reason="done").written
    assert console.ann.scale(APP, 9, reason="sale").intents == (f"scale/{APP}",)
    assert console.ann.scale(APP, None, reason="over").intents == (f"scale/{APP}",)
    assert [intent for _, intent in written[before + 1 :]] == [
        TakenBack(by="ann", at=NOW, reason="done"),
        Pause(by="ann", at=NOW, reason="lunch"),
        TakenBack(by="ann", at=NOW, reason="done"),
        Scale(app=AppId(APP), workers=9, by="ann", at=NOW, reason="sale"),
        TakenBack(by="ann", at=NOW, reason="over"),
    ]


def test_a_refusal_is_an_exception_with_its_problem(console: Console) -> None:
    with pytest.raises(ProblemError) as refused:
        console.vera.worker("nobody")
    problem = refused.value.problem
    assert (problem.type, problem.title, problem.status) == ("about:blank", "Not Found", 404)
    assert problem.detail == "there is no such worker"
    assert str(refused.value) == "404 Not Found: there is no such worker"
    with pytest.raises(ProblemError, match="403 Forbidden: found the role viewer, expected operator"):
        console.vera.pause(reason="test")
    console.ann.pause(reason="one", key="k9")
    with pytest.raises(ProblemError, match="of another request") as again:
        console.ann.pause(reason="two", key="k9")
    assert (again.value.status, again.value.key) == (422, "k9")
    console.ann.resume(reason="done")


def test_a_name_stays_one_step_of_the_path(console: Console) -> None:
    with pytest.raises(ProblemError, match="404"):
        console.vera.worker("a/../../cluster?x=1#y")
    for name in ("", ".", ".."):
        with pytest.raises(ValueError, match="expected one of a worker"):
            console.vera.worker(name)


def test_a_change_is_told_live(console: Console) -> None:
    changes = console.vera.live()
    first = next(changes)
    console.setup.watch.take(status_record(replace(BIG.status(), paused="lunch")))
    assert next(changes).version > first.version
    changes.close()
    console.setup.watch.take(status_record(BIG.status()))
