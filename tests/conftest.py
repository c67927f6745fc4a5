"""What all tests share."""

import gc
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.paths import END_TO_END, ROOT
from tests.shown import PROPERTY, Show, rows_of, table

# How long an example takes says nothing on a machine that others use too.
settings.register_profile("trimtab", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trimtab")


@pytest.hookimpl(trylast=True)  # after those that mark tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = [ROOT / folder for folder in END_TO_END]
    for item in items:
        if item.get_closest_marker("e2e") and not any(folder in item.path.parents for folder in folders):
            raise pytest.UsageError(f"{item.nodeid}: end-to-end tests are expected in {', '.join(END_TO_END)}")


def pytest_collection_finish() -> None:
    """What has been imported stays: no garbage collection has to go through it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def show(request: pytest.FixtureRequest) -> Show:
    """`show(what, planned, measured)`: a row of the table at the end of the run."""
    return lambda what, planned, measured: request.node.user_properties.append((PROPERTY, (what, planned, measured)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what scenarios have shown."""
    reports = [report for each in terminalreporter.stats.values() for report in each if hasattr(report, "when")]
    found = [
        (report.nodeid.removeprefix("tests/"), rows_of(report.user_properties))
        for report in reports
        if report.when == "call"
    ]
    if text := table(found):
        terminalreporter.section("what scenarios show")
        terminalreporter.write_line(text)


@pytest.fixture
def no_descriptor() -> Callable[[], AbstractContextManager[None]]:
    """`with no_descriptor():` this process can open nothing."""

    @contextmanager
    def starved() -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return starved
