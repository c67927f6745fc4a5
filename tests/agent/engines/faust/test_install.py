"""One line in the user's app; what cannot be steered is said, with the reason."""

import asyncio
import logging
import os
import re
from pathlib import Path
from typing import Any

import faust
import pytest
from faust.assignor.partition_assignor import PartitionAssignor
from faust.transport.drivers.aiokafka import Consumer, Producer
from mode import Service

from tests.paths import ROOT
from trimtab_agent.engines.faust import NotConfigured, install
from trimtab_agent.engines.faust.agent_link import AgentConnection
from trimtab_agent.engines.faust.collect import Collector
from trimtab_agent.engines.faust.install import _topics, unfit, unfit_agents, unfit_tables, unfit_topics
from trimtab_agent.engines.faust.transport.consumer import SteeredConsumer, SteeredTransport
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.signing.keys import SigningKey, write_trust


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # Faust makes the folder of a store where it runs
    monkeypatch.setenv("TRIMTAB_CLUSTER", "demo")
    monkeypatch.setenv("TRIMTAB_WORKER", "w0")
    monkeypatch.delenv("TRIMTAB_SOCKET", raising=False)
    monkeypatch.delenv("TRIMTAB_TRUST", raising=False)


class OwnAssignor(PartitionAssignor):  # type: ignore[misc]
    """What an app may have, to keep customers of one country on one worker."""


def app(**options: Any) -> Any:
    return faust.App("ks", **{"store": "rocksdb://", "web_enabled": False, **options})


def test_a_fit_app_is_steered_whether_its_agents_are_defined_before_or_after() -> None:
    before = app()

    @before.agent(before.topic("in"))
    async def work(stream: Any) -> None: ...

    for fit in (before, app()):
        plugin = install(fit)
        assert plugin.steering.status.refusal is None
        assert isinstance(fit.transport, SteeredTransport)
        assert fit.conf.table_standby_replicas == 0
        assert fit.assignor.metadata(set()).user_data


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"processing_guarantee": "exactly_once"}, "processing_guarantee"),
        ({"producer_threaded": True}, "producer_threaded"),
        ({"stream_wait_empty": False}, "stream_wait_empty"),
        ({"consumer_auto_offset_reset": "latest"}, "consumer_auto_offset_reset='latest'"),
        ({"consumer_group_instance_id": "w0"}, "consumer_group_instance_id"),
        ({"PartitionAssignor": OwnAssignor}, "PartitionAssignor"),
        ({"broker": "confluent://localhost"}, "broker driver 'confluent'"),
    ],
)
def test_an_unfit_app_reports_only_and_keeps_its_own_ways(options: dict[str, Any], reason: str) -> None:
    unfitting = app(**options)

    assert [found for found in unfit(unfitting) if found.startswith(reason)]
    if "broker" not in options:
        plugin = install(unfitting)
        assert plugin.steering.status.refusal is not None
        assert reason in plugin.steering.status.refusal
        assert not isinstance(unfitting.transport, SteeredTransport)
        assert unfitting.conf.table_standby_replicas == 1


@pytest.mark.parametrize("part", ["producer", "consumer", "assignor", "router"])
async def test_an_app_that_has_used_what_would_be_replaced_reports_only(part: str) -> None:
    """It would keep Faust's own, beside what the plug-in has replaced."""
    used = app()
    getattr(used, part)

    told = install(used).steering.status.refusal

    assert told is not None
    assert f"app.{part.replace('router', 'assignor')}: used before install" in told
    assert not isinstance(used.transport, SteeredTransport)


@pytest.mark.filterwarnings("ignore::faust.exceptions.AlreadyConfiguredWarning")
async def test_a_setting_that_was_changed_after_install_is_seen_before_the_join() -> None:
    changed = app()
    plugin = install(changed)
    changed.conf.stream_wait_empty = False
    assert plugin.steering.status.refusal is None

    await plugin.steering.watcher.before_join(frozenset())

    assert "stream_wait_empty=False" in (plugin.steering.status.refusal or "")


async def test_a_worker_that_keeps_fausts_own_consumer_is_measured() -> None:
    """That consumer does not know of steering: the worker's state comes from what every Faust worker has."""

    unfitting = app(stream_wait_empty=False)
    plugin, found = install(unfitting), []
    assert not isinstance(unfitting.consumer, SteeredConsumer)
    collector = Collector(plugin.sensor, plugin.steering.status, worker=WorkerId("w0"))
    collector.skip()
    for recovering, rebalancing in ((False, False), (True, False), (False, True)):
        unfitting.tables.recovery.in_recovery, unfitting.rebalancing = recovering, rebalancing
        found.append(collector.collect(at_ms=5000, interval_s=1.0).state)
    states = found

    assert states == [WorkerState.RUNNING, WorkerState.RECOVERING, WorkerState.REBALANCING]


@pytest.mark.parametrize(
    ("id_", "fits"), [("Orders.eu-1_v", True), ("_orders", False), ("x" * 201, False), ("ä", False)]
)
def test_an_id_that_no_message_can_hold_is_named(id_: str, *, fits: bool) -> None:
    found = list(unfit(faust.App(id_, store="rocksdb://", web_enabled=False)))
    assert [reason.split(":")[0] for reason in found] == ([] if fits else [f"id={id_!r}"])


def test_the_guide_names_every_condition() -> None:
    guide = (ROOT / "docs" / "guides" / "steer-your-own-app.md").read_text()
    wrong = faust.App(
        "_ks",
        store="rocksdb://",
        web_enabled=False,
        processing_guarantee="exactly_once",
        stream_publish_on_commit=True,
        producer_threaded=True,
        stream_wait_empty=False,
        consumer_auto_offset_reset="latest",
        consumer_group_instance_id="w0",
        PartitionAssignor=OwnAssignor,
        broker="confluent://localhost",
    )

    reasons = list(unfit(wrong))

    assert len(reasons) == 9
    assert [reason for reason in reasons if f"`{re.split('[:= ]', reason)[0]}`" not in guide] == []


def test_tables_that_cannot_move_are_named() -> None:
    mixed = app()
    mixed.Table("fine")
    mixed.GlobalTable("everywhere")
    mixed.Table("scattered", use_partitioner=True)
    in_memory = app(store="memory://")
    in_memory.Table("lost")

    assert [reason.split(":")[0] for reason in unfit_tables(mixed)] == ["table everywhere", "table scattered"]
    assert [reason.split(",")[0] for reason in unfit_tables(in_memory)] == ["table lost: store memory:"]
    sets = app()
    sets.SetTable("tags")
    assert list(unfit_tables(sets)) == ["table tags: a SetTable keeps its sets in memory"]
    indexed = app()
    indexed.Table("orders", on_changelog_event=print)
    assert [reason.split(" is ")[0] for reason in unfit_tables(indexed)] == ["table orders: on_changelog_event"]


def test_a_table_whose_rows_or_changelog_have_another_life_is_named() -> None:
    strange = app()
    strange.Table("fine")
    strange.Table("fading", options={"ttl": 60})
    both = strange.topic("rates", compacting=True)
    strange.Table("rates", changelog_topic=both)
    for table in strange.tables.values():  # as when the worker starts
        strange.topics.add(table.changelog_topic.clone_using_queue(strange.tables.changelog_queue))
    assert [reason.split(":")[0] for reason in unfit_tables(strange)] == ["table fading"]

    strange.topics.add(both)

    assert [reason.split(":")[0] for reason in unfit_tables(strange)] == ["table fading", "table rates"]


def test_a_windowed_table_is_named_with_the_index_of_its_keys() -> None:
    """The agents of the operator write both."""
    indexed = app().Table("sums", default=int).tumbling(10.0, expires=60.0, key_index=True)
    assert _topics({"one": [indexed]}) == {"one": {"ks-sums-changelog", "ks-sums-key_index-changelog"}}


def test_agents_whose_actors_follow_rebalances_alone_are_named() -> None:
    isolated = app()

    @isolated.agent(isolated.topic("in"), isolated_partitions=True, name="alone")
    async def work(stream: Any) -> None: ...

    @isolated.agent(isolated.topic("in"), concurrency=2)
    async def together(stream: Any) -> None: ...

    assert [reason.split(":")[0] for reason in unfit_agents(isolated)] == ["agent alone"]


async def test_an_app_whose_events_are_never_acknowledged_cannot_be_steered() -> None:
    silent = app()
    silent.topics.add(aiter(silent.topic("fine")))
    silent.topics.add(aiter(silent.topic("silent", acks=False)))
    silent.topics.add(aiter(silent.topic("fine", acks=False)))
    silent.topics._acking_topics.add("fine")
    assert list(unfit_topics(silent)) == ["topic silent: with acks=False nobody knows which of its events are done"]


async def test_with_a_socket_the_worker_talks_to_its_agent_whatever_its_app_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRIMTAB_SOCKET", "/run/trimtab/agent.sock")
    talking, begun = app(), asyncio.Event()

    @talking.service
    class WebServer(Service):  # type: ignore[misc]
        async def on_start(self) -> None:
            begun.set()
            await asyncio.Event().wait()  # it serves here, for ever

    install(talking)
    talking._started.set()
    starting = asyncio.create_task(talking.on_started_init_extra_services())
    async with asyncio.timeout(10.0):
        await begun.wait()
    (link,) = [child for child in talking._children if isinstance(child, AgentConnection)]

    assert link.started
    starting.cancel()
    await link.stop()


@pytest.mark.parametrize("variable", ["TRIMTAB_CLUSTER", "TRIMTAB_WORKER"])
def test_who_this_process_is_must_be_said(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "no name")
    with pytest.raises(NotConfigured, match=f"{variable}: found 'no name', expected a name"):
        install(app())
    monkeypatch.delenv(variable)
    with pytest.raises(NotConfigured, match=f"{variable}: not set"):
        install(app())


def test_whether_placements_are_verified_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(app())
    assert "placements are not verified" in caplog.text

    monkeypatch.setenv("TRIMTAB_TRUST", str(tmp_path / "none"))
    with pytest.raises(NotConfigured, match=r"TRIMTAB_TRUST: .*none: No such file"):
        install(app())

    (tmp_path / "trusted.keys").write_text(write_trust([SigningKey.generate().public]))
    monkeypatch.setenv("TRIMTAB_TRUST", str(tmp_path / "trusted.keys"))
    caplog.clear()
    install(app())
    assert "not verified" not in caplog.text


async def test_trimtab_is_heard_whatever_logging_the_app_configures() -> None:
    made, log = app(), logging.getLogger("trimtab_agent.engines.faust.transport.client")
    install(made)
    loggers = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    before = [(each, each.disabled) for each in loggers]
    try:
        for each in loggers:  # as `dictConfig` does, unless told otherwise, and Faust calls it when a worker starts
            each.disabled = True
        await made.on_first_start()
        assert log.isEnabledFor(logging.WARNING)
        assert not logging.getLogger("aiokafka").isEnabledFor(logging.WARNING), "what the app wants of others is kept"
    finally:
        for each, disabled in before:
            each.disabled = disabled


def test_the_agent_can_read_the_environment_of_a_worker_that_sets_its_title(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust does where setproctitle is installed, which writes over the environment unless this variable is set."""
    monkeypatch.setenv("SPT_NOENV", "")
    install(app())
    assert os.environ["SPT_NOENV"] == "1"


@pytest.mark.parametrize("mode", ["client_only", "producer_only"])
async def test_a_program_that_only_asks_or_sends_is_no_worker(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A web server of the same code, with `app.start_client()`: it is in no group, and no agent counts it."""
    monkeypatch.setenv("TRIMTAB_SOCKET", "/run/trimtab/agent.sock")

    asking = app()
    install(asking)
    setattr(asking, mode, True)
    if mode == "client_only":
        assert type(asking.consumer) is Consumer
    (service,) = asking._extra_services
    link = await asking.on_init_extra_service(service)
    await link.maybe_start()
    await asking._stop_consumer()
    assert ([type(asking.producer)], link.started) == ([Producer], False)


def test_an_app_belongs_to_the_event_loop_that_starts_it() -> None:
    """A web server that it runs inside of makes one later, and nothing would ever answer in another one."""
    made = app()
    install(made)

    async def start() -> bool:
        assert made.consumer is not None
        return made.loop is made.flow_control.loop is asyncio.get_running_loop()

    assert asyncio.run(start())


async def test_what_waits_is_kept_while_the_flow_is_open_and_dropped_when_it_opens_again() -> None:
    """Else a standby of Faust, in an app that turns out to be unfit, would lack records of its changelog."""
    made = app()
    install(made)
    assert made.consumer is not None
    flow, queue = made.flow_control, made.tables.changelog_queue

    queue.force_put_nowait("before the first assignment")
    flow.resume()
    assert queue.empty()
    assert flow.is_active()

    queue.force_put_nowait("of a standby")
    flow.resume()
    assert queue.get_nowait() == "of a standby"

    queue.force_put_nowait("of the assignment before")
    flow.suspend()
    assert not flow.is_active()
    flow.resume()
    assert queue.empty()
    assert flow.is_active()
