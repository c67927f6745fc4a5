"""A worker notes before its first join whether the app has no state yet; what is unknown counts as state."""

import asyncio
import time
from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent.engines.faust.steering.test_commands_to_worker import Worker
from trimtab_agent.engines.faust.steering import steering, worker_status
from trimtab_agent.engines.faust.steering.group_watcher import GroupWatcher


def joined(*, empty: bool, placed: bool = False, loaded: bool = True) -> Worker:
    """A worker that has joined its group; `loaded`: whether it could read the placements' topic before."""
    worker = Worker()
    if not placed:
        worker.shared.newest = None
    side: Any = SimpleNamespace(started=False, start=lambda: None, placement_loaded=lambda: loaded)
    settings = replace(worker.parts.settings, placement_load_limit_s=0.01)

    async def is_empty(changelogs: Collection[str]) -> bool:
        return empty

    parts = replace(worker.parts, side=side, settings=settings)
    watcher = GroupWatcher(parts, named_topics=dict, unfit_parts=list, is_empty=is_empty)
    asyncio.run(watcher.before_join(frozenset({"in"})))
    return worker


def test_an_app_without_placement_offsets_and_changelogs_is_fresh_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = joined(empty=True)
    assert worker.status.fresh
    assert worker.shared.empty_at is not None
    now = worker.shared.empty_at + worker_status.FRESH_S + 1.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert not worker.status.fresh


@pytest.mark.parametrize(
    "found",
    [{"empty": False}, {"empty": True, "placed": True}, {"empty": True, "loaded": False}],
    ids=["state", "placement", "placement unknown"],
)
def test_any_other_app_is_not(found: dict[str, bool]) -> None:
    assert not joined(**found).status.fresh


def test_an_app_is_not_empty_while_the_broker_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "STATE_LIMIT_S", 0.5)
    nowhere = {"bootstrap_servers": "127.0.0.1:1", "client_id": "t", "request_timeout_ms": 200}
    assert not asyncio.run(steering.is_empty(nowhere, "app", ["app-sums-changelog"]))
