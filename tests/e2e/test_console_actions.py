"""What an operator does from the console to a real job: start a worker, end a plan, end a hold, forget a worker."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect, sync_playwright

from flights.wire import APP
from tests.e2e.console_dialogs import LIMIT_S, confirm, intents, opened, running, scale, unscale
from tests.e2e.console_pages import LIMIT_MS, REFUSED, log_in, new_page
from tests.programs import program
from tests.waiting import wait_for
from trimtab_client import Access, Client
from trimtab_controller.execution.journal import KEY as JOURNAL_KEY
from trimtab_sandbox.broker import Topic
from trimtab_sandbox.cluster import SandboxCluster
from trimtab_sandbox.command import EXAMPLES, FLIGHTS_ENVIRONMENT
from trimtab_sandbox.configuration import CONTROLLER, SandboxSettings

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]

KEY_GROUPS = 64
WINDOW_S = 5.0
"""Of a sandbox."""
NOTHING_TOLD = "responded with a status of 404"
"""Chromium's line for what a page asks for in vain, such as the apps of a controller that has not decided yet."""
ONE_BY_ONE = {"handovers_in_flight": 1, "handovers_per_host": 1, "key_groups_per_handover": 1}
"""So that a plan is still in flight when a person has found the button that ends it."""


def started(folder: Path, *, workers: int, pool: int) -> SandboxCluster:
    """A cluster that acts, with the flights' app; to be closed by the caller."""
    settings = SandboxSettings(
        app="flights.app:app", app_folder=EXAMPLES, workers=workers, pool=pool, app_id=APP,
        environment={**FLIGHTS_ENVIRONMENT, "FLIGHTS_KEY_GROUPS": str(KEY_GROUPS)},
        controller={"execution": ONE_BY_ONE},
    )  # fmt: skip
    cluster = SandboxCluster(settings, folder)
    sizes = {"flights": KEY_GROUPS, "flights-delays": KEY_GROUPS, "flights-totals": 4}
    try:
        cluster.start([Topic(name=name, partitions=count) for name, count in sizes.items()], act=True)
    except BaseException:
        cluster.close()
        raise
    return cluster


@contextmanager
def operating(cluster: SandboxCluster) -> Iterator[tuple[Page, str, Client]]:
    """A browser whose operator is logged in, the console's address, and a client; pages must show no fault."""
    expect.set_options(timeout=LIMIT_MS)
    access = cluster.start_console()
    address = access.address.rstrip("/")
    faults: list[str] = []
    with sync_playwright() as playwright, Client(Access(address=address, token=access.token)) as console:
        wait_for(lambda: running(console) and list(console.apps()), "a worker runs")
        browser = playwright.chromium.launch(executable_path=program("chromium"), args=["--no-sandbox"])
        page = new_page(browser, address, faults)
        log_in(page, access)
        yield page, address, console
    assert [fault for fault in faults if NOTHING_TOLD not in fault and not REFUSED.search(fault)] == []


def test_a_worker_is_started_and_a_drain_stopped(tmp_path: Path) -> None:
    with started(tmp_path / "sandbox", workers=2, pool=1) as cluster, operating(cluster) as (page, address, console):
        scale(page, address, console, workers=2)
        stop_a_drain(page, address, console)
        unscale(page, address, console)


def test_a_hold_is_ended_and_a_lost_worker_forgotten(tmp_path: Path) -> None:
    with started(tmp_path / "sandbox", workers=3, pool=0) as cluster, operating(cluster) as (page, address, console):
        wait_for(lambda: running(console) == 3, "three workers run")
        accept_a_lost_journal(page, address, console, cluster)
        forget_a_lost_worker(page, address, console, cluster)


def owners(console: Client) -> set[str | None]:
    """The workers that own key groups by the published placement."""
    return {row.owner for row in console.placement(APP)}


def accept_a_lost_journal(page: Page, address: str, console: Client, cluster: SandboxCluster) -> None:
    """Somebody deletes the journal; the next controller decides nothing until the operator accepts that."""
    cluster.kill(CONTROLLER)
    producer = Producer({"bootstrap.servers": cluster.broker.address})
    producer.produce(cluster.topics.journal, key=JOURNAL_KEY, value=None)
    assert producer.flush(LIMIT_S) == 0
    cluster.start_controller(act=True)
    wait_for(lambda: console.cluster().hold, "the controller is on hold")
    page.goto(f"{address}/#/health")
    expect(page.get_by_text("On hold, nothing moves: the journal cannot be trusted").first).to_be_visible()
    telling = "the controller rebuilds its state from the placement and the reports"
    confirm(page, "Accept the journal", "Accept the journal as it is?", telling)
    wait_for(lambda: not console.cluster().hold, "the hold has ended")
    wait_for(lambda: intents(console) == [], "the intent is answered")
    expect(page.get_by_role("button", name="Accept the journal")).to_have_count(0)
    wait_for(lambda: owners(console) == {"w0", "w1", "w2"}, "all key groups have owners")


def forget_a_lost_worker(page: Page, address: str, console: Client, cluster: SandboxCluster) -> None:
    """A worker dies, then its host: its name is forgotten by the button in its row, then by name."""
    cluster.kill("w2")
    wait_for(lambda: [row.worker for row in console.workers(state="away")] == ["w2"], "w2 is away")
    wait_for(lambda: owners(console) == {"w0", "w1"}, "its key groups are with the others")
    page.goto(f"{address}/#/health")
    telling = "worker w2 will be forgotten with the next window"
    confirm(page, "Forget w2", "Forget w2?", telling)
    wait_for(lambda: intents(console) == [], "the intent is answered")
    answer = "worker w2: it is no longer awaited, started or drained, asked for by sandbox: by dialog"
    expect(page.get_by_text(answer).first).to_be_visible()
    cluster.kill("h2")
    wait_for(lambda: not list(console.workers(state="away")), "no agent reports w2")
    page.goto(f"{address}/#/health")
    confirm(page, "Forget a worker", "Forget a worker?", telling, Worker="w2")
    wait_for(lambda: intents(console) == [], "the intent is answered")


def stop_a_drain(page: Page, address: str, console: Client) -> None:
    """A plan that empties w0 ends half-way, and the drain is cancelled."""
    wait_for(
        lambda: console.worker("w0").key_groups and console.worker("w1").steering, "w0 owns key groups, w1 takes some"
    )
    owned = console.worker("w0").key_groups
    page.goto(f"{address}/#/cluster")
    confirm(page, "Drain w0", "Drain w0?", "w0 will be drained")
    wait_for(lambda: any(row.ended_at is None for row in console.plans()), "a plan is in flight")
    (plan,) = [row.plan for row in console.plans() if row.ended_at is None]
    page.goto(f"{address}/#/plan")
    expect(page.get_by_role("button", name=f"Stop the plan of {APP}")).to_be_visible()
    page.goto(f"{address}/#/cluster")
    confirm(page, "Stop all plans, and pause", "Stop all plans?", f"stopping plan {plan}")
    wait_for(lambda: console.plan(plan).ended_at, "the plan has ended")
    ended = console.plan(plan)
    assert ended.stopped is not None
    assert "stopped by sandbox: by dialog" in ended.stopped
    page.goto(f"{address}/#/plan/{plan}")
    expect(page.get_by_text("stopped by sandbox: by dialog").first).to_be_visible()
    expect(page.get_by_text("w0 was being drained").first).to_be_visible()
    first_end = (ended.ended_at or 0.0) + WINDOW_S
    wait_for(lambda: max(row.at for row in console.history(APP)) > first_end, "a window began after its end")
    dialog = opened(page, f"Undo plan {plan}", f"Undo plan {plan}?")
    expect(dialog.locator(".told")).to_contain_text("w0 is being drained")
    dialog.get_by_label("Take back what can go back, if not all of it can").check()
    expect(dialog.locator(".told")).to_contain_text("no key group can go back: w0 is being drained")
    page.keyboard.press("Escape")
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
