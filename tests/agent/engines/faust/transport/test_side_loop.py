"""The side loop's clients do not fill the app's log."""

import asyncio
import logging

import pytest

from trimtab_agent.engines.faust.transport.side_loop import CLIENT_LOGS, SideLoop


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
    assert caplog.messages == [f"fault of {name}", "the app's own", f"routine of {name}", f"fault of {name}"]
