"""What an operator does from the console to a real job: start a worker, and end a plan in flight."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from flights.wire import APP
from tests.e2e.console_dialogs import confirm, intents, running, scale, until
from tests.e2e.console_pages import LIMIT_MS, log_in, new_page
from tests.programs import program
from trimtab_client import Access, Client
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import Cluster
from trimtab_sandbox.command import EXAMPLES, FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import SandboxSettings

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]

KEY_GROUPS = 64
ONE_BY_ONE = {"handovers_in_flight": 1, "handovers_per_host": 1, "key_groups_per_handover": 1}
"""So that a plan is still in flight when a person has found the button that ends it."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = SandboxSettings(
        app="flights.app:app", app_folder=EXAMPLES, workers=2, pool=1, app_id=APP,
        environment={**FLIGHTS_ENVIRONMENT, "FLIGHTS_KEY_GROUPS": str(KEY_GROUPS)},
        controller={"execution": ONE_BY_ONE},
    )  # fmt: skip
    with Cluster(settings, tmp_path_factory.mktemp("actions") / "sandbox") as made:
        sizes = {"flights": KEY_GROUPS, "flights-delays": KEY_GROUPS, "flights-totals": 4}
        made.start([Topic(name=name, partitions=count) for name, count in sizes.items()], act=True)
        yield made


def test_from_the_dialogs_to_the_job(cluster: Cluster) -> None:
    browser_path = program("chromium")
    expect.set_options(timeout=LIMIT_MS)
    access = cluster.start_console()
    address = access.address.rstrip("/")
    faults: list[str] = []
    with sync_playwright() as playwright, Client(Access(address=address, token=access.token)) as console:
        until(lambda: running(console) == 1 and list(console.apps()), "a worker runs")
        page = new_page(
            playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"]), address, faults
        )
        log_in(page, access)
        scale(page, address, console, workers=2)
        stop_a_drain(page, address, console)
    assert faults == []


def stop_a_drain(page: Page, address: str, console: Client) -> None:
    """A plan that empties w0 ends half-way, and the drain is cancelled."""
    until(
        lambda: console.worker("w0").key_groups and console.worker("w1").steering, "w0 owns key groups, w1 takes some"
    )
    owned = console.worker("w0").key_groups
    page.goto(f"{address}/#/cluster")
    confirm(page, "Drain w0", "Drain w0?", "w0 will be drained")
    until(lambda: any(row.ended_at is None for row in console.plans()), "a plan is in flight")
    (plan,) = [row.plan for row in console.plans() if row.ended_at is None]
    page.goto(f"{address}/#/cluster")
    confirm(page, "Stop all plans, and pause", "Stop all plans?", f"stopping plan {plan}")
    until(lambda: console.plan(plan).ended_at, "the plan has ended")
    ended = console.plan(plan)
    assert ended.stopped is not None
    assert "stopped by sandbox: by dialog" in ended.stopped
    page.goto(f"{address}/#/plan/{plan}")
    expect(page.get_by_text("stopped by sandbox: by dialog").first).to_be_visible()
    expect(page.get_by_text("w0 was being drained").first).to_be_visible()
    told = console.explanation(plan)
    assert {(move.source, move.reason) for move in told.moves} == {("w0", "drain")}
    assert {move.outcome for move in told.moves} == {"done", "failed"}, "some had arrived when it was stopped"
    phases = [row.phase for row in console.events(plan=plan, kind="plan")]
    assert phases[-1] == "begun"
    assert phases.index("ended") < phases.index("stopped")
    wanted = [row.text for row in console.events(kind="intent") if row.phase == "given"]
    assert "stop all plans, by sandbox: by dialog" in wanted, "though it was answered at once"
    page.goto(f"{address}/#/cluster")
    confirm(page, "Cancel the drain of w0", "Cancel the drain of w0?", "it takes key groups again")
    assert 0 < console.worker("w0").key_groups <= owned, "the drain stopped half-way"
    confirm(page, "Resume", "Resume?", "the controller decides again")
    assert intents(console) == []
