"""What the tests of the agent share."""

import asyncio
import inspect
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own, or in that of its fixtures."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    loop = pyfuncitem.funcargs.get("loop")
    if isinstance(loop, asyncio.AbstractEventLoop):
        loop.run_until_complete(test)
    else:
        asyncio.run(test)
    return True


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The event loop of a test whose fixtures need one."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    asyncio.set_event_loop(None)
    made.close()


@pytest.fixture
def path() -> Iterator[Path]:
    """A path for a socket, which has at most 107 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "s"
