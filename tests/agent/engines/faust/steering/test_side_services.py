"""The side loop's clients do not fill the app's log."""

import asyncio
import logging
import time

import pytest

from trimtab_agent.engines.faust.steering.side_services import CLIENT_LOGS, SideLoop


async def say(name: str) -> None:
    logging.getLogger(name).info("routine of %s", name)
    logging.getLogger(name).warning("fault of %s", name)


async def say_on_both(name: str) -> None:
    side = SideLoop("side")
    await asyncio.wrap_future(side.submit(say(name)))
    logging.getLogger(name).info("the app's own")
    await side.close()
    await say(name)


@pytest.mark.parametrize("name", CLIENT_LOGS)
def test_only_faults_of_its_clients_are_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=name):
        asyncio.run(say_on_both(name))
    said = [record.getMessage() for record in caplog.records if record.name == name]
    assert said == [f"fault of {name}", "the app's own", f"routine of {name}", f"fault of {name}"]


async def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_the_cpu_of_the_thread_is_known_until_it_ends() -> None:
    side = SideLoop("side")
    before = side.cpu_s
    await asyncio.wrap_future(side.submit(burn(0.05)))
    after = side.cpu_s
    await side.close()
    before, after, ended = (before, after, side.cpu_s)
    assert before is not None
    assert after is not None
    assert ended is None
    assert after - before >= 0.05
