"""`install(app, local=[...])`: off by default, and what cannot be local is said."""

from pathlib import Path
from typing import Any

import faust
import pytest
from faust.types import TP

from trimtab_agent.engines.faust import install
from trimtab_agent.engines.faust.local.consumer import LocalSensor, LocalTransport
from trimtab_agent.engines.faust.local.gate import GateState, LocalGate
from trimtab_agent.engines.faust.measure import KeyGroupSensor
from trimtab_agent.engines.faust.transport.consumer import SteeredTransport


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_CLUSTER", "demo")
    monkeypatch.setenv("TRIMTAB_WORKER", "w0")
    for name in ("TRIMTAB_SOCKET", "TRIMTAB_TRUST"):
        monkeypatch.delenv(name, raising=False)


def app(**options: Any) -> Any:
    return faust.App("ks", **{"store": "rocksdb://", "web_enabled": False, **options})


def test_without_local_topics_nothing_of_it_is_there() -> None:
    plain = app()
    plugin = install(plain)
    assert plugin.hop is None
    assert type(plain.transport) is SteeredTransport
    assert type(plugin.sensor) is KeyGroupSensor


def test_topics_are_named_by_object_or_by_name() -> None:
    for _ in range(2):  # several apps in one process
        one = app()
        plugin = install(one, local=[one.topic("delays"), "totals"])
        assert plugin.hop is not None
        assert sorted(plugin.hop.routes) == ["delays", "totals"]
        assert isinstance(one.transport, LocalTransport)
        assert isinstance(plugin.sensor, LocalSensor)
        assert plugin.steering.status.refusal is None


async def test_a_topic_that_another_group_reads_is_no_longer_direct_and_the_worker_says_so() -> None:
    one = app()
    plugin = install(one, local=["delays", "totals"])
    hop: Any = plugin.hop

    class Outside:
        async def refusal(self, topic: str) -> str | None:
            return "consumer group 'analyst' reads it too" if topic == "delays" else None

    hop._outside = Outside()
    for name in ("delays", "totals"):
        gate = hop.routes[name].gates[3] = LocalGate(TP(name, 3), [], {})
        gate.state = GateState.OPEN
    await hop.check_readers()
    assert {name: route.gates[3].state for name, route in hop.routes.items()} == {
        "delays": GateState.CLOSED,
        "totals": GateState.OPEN,
    }
    assert plugin.steering.status.waits_for == "delays is not local: consumer group 'analyst' reads it too"


def test_a_topic_with_several_names_or_a_pattern_is_refused() -> None:
    one = app()
    for topic in (one.topic("a", "b"), one.topic(pattern="a.*")):
        with pytest.raises(ValueError, match="expected topics with one name each"):
            install(one, local=[topic])


def test_an_app_that_is_not_steered_has_no_local_hop() -> None:
    threaded = app(producer_threaded=True)
    plugin = install(threaded, local=[threaded.topic("delays")])
    assert plugin.hop is None
    own = app(producer_partitioner=lambda key, partitions, available: partitions[0])
    plugin = install(own, local=[own.topic("delays")])
    assert plugin.hop is None
    assert "producer_partitioner" in str(plugin.steering.status.refusal)
