"""An operator decides on a real job: a plan waits, survives a take-over, is approved; a move, and its undoing.

python -m pytest tests/e2e/test_operator_plans.py -n 0 -s
"""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.e2e.console_dialogs import confirm, intents, until
from tests.e2e.console_pages import LIMIT_MS, log_in, new_page
from tests.e2e.page_views_run import Run, page_views
from tests.programs import program
from trimtab_client import Access, Client
from trimtab_protocol.console_documents import PlanReport
from trimtab_protocol.messages.status import ProposalStatus
from trimtab_sandbox.configuration import CONTROLLER

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]

ASKING = {
    "plans": {"mode": "approve"},
    "placement": {"first": "lf"},  # a plan that is surely wanted
    "balance": {"min_interval_s": 10.0, "load_distance": 60.0},
}


def test_a_plan_waits_for_an_operator_who_also_moves_and_undoes(tmp_path: Path) -> None:
    expect.set_options(timeout=LIMIT_MS)
    with page_views(tmp_path, "asking", session_s=6.0, controller=ASKING) as run:
        clicks = run.start_job()
        waits = survives_a_take_over(run)
        access = run.cluster.start_console()
        address = access.address.rstrip("/")
        faults: list[str] = []
        with sync_playwright() as playwright, Client(Access(address=address, token=access.token)) as console:
            until(lambda: list(console.proposals()), "the console knows the plan that waits")
            browser = playwright.chromium.launch(executable_path=program("chromium"), args=["--no-sandbox"])
            page = new_page(browser, address, faults)
            log_in(page, access)
            approve(page, address, console, waits)
            moved = move(page, address, console)
            undo(page, address, console, moved)
        clicks.close()
        assert run.counted(clicks.sent) == clicks.sent, "nothing is lost, and nothing counted twice"


def survives_a_take_over(run: Run) -> ProposalStatus:
    """A plan waits, and moves nothing; another controller knows it under the same name."""
    status = run.until(lambda status: status.proposals, "a plan waits")
    assert status.rounds == ()
    (row,) = status.proposals
    run.cluster.kill(CONTROLLER)
    run.cluster.start_controller(act=True)
    after = run.until(lambda later: later.epoch.generation > status.epoch.generation, "another controller leads")
    assert [each.plan for each in after.proposals] == [row.plan]
    assert after.rounds == ()
    return row


def ended(console: Client, plan: str) -> PlanReport:
    """The plan, once it has ended; all of it has moved."""
    until(lambda: any(each.plan == plan and each.ended_at for each in console.plans()), f"plan {plan} has ended")
    found = console.plan(plan)
    assert (found.failed, found.stopped) == (0, None)
    return found


def approve(page: Page, address: str, console: Client, waits: ProposalStatus) -> None:
    """The operator sees what moves, and approves it; it begins under its name."""
    page.goto(f"{address}/#/plan")
    expect(page.get_by_text("waits for approval", exact=True).first).to_be_visible()
    name = waits.plan
    confirm(
        page,
        f"Approve plan {name}",
        f"Approve plan {name}?",
        f"plan {name} of {waits.app} begins: {waits.moves_total} move",
    )
    assert ended(console, name).migrations == waits.moves_total
    assert (list(console.proposals()), intents(console)) == ([], [])
    phases = [row.phase for row in console.events(plan=name, kind="plan")]
    assert phases[::-1][:2] == ["proposed", "begun"]


def move(page: Page, address: str, console: Client) -> PlanReport:
    """The operator moves one key group to another worker, without any approval."""
    (app,) = [row.app for row in console.apps()]
    first = next(console.placement(app))
    key_group = f"{app}/{first.operator}/{first.partition}"
    target = next(row.worker for row in console.workers() if row.worker != first.owner)
    page.goto(f"{address}/#/why/{key_group.replace('/', '%2F')}")
    confirm(
        page, f"Move {key_group} to {target}", f"Move {key_group} to {target}?", f"1 key group of {app} to {target}"
    )
    until(lambda: owner(console, key_group) == target, "the key group has moved")
    until(lambda: asked(console), "the plan of the move is listed")
    (plan,) = asked(console)
    assert ended(console, plan.plan).migrations == 1
    return plan


def asked(console: Client) -> list[PlanReport]:
    """The plans that an operator's move has made; the status has them later than the placement."""
    return [row for row in console.plans() if "moves it: by dialog" in row.reason]


def undo(page: Page, address: str, console: Client, plan: PlanReport) -> None:
    """The operator takes that back, after the page has said what it costs."""
    (moved,) = console.explanation(plan.plan).moves
    page.goto(f"{address}/#/plan/{plan.plan}")
    title = f"Undo plan {plan.plan}"
    confirm(page, title, f"{title}?", f"plan {plan.plan} of {plan.app} will be undone: 1 key group back")
    until(lambda: owner(console, moved.key_group) == moved.source, "the key group is back")
    assert (moved.reason, intents(console)) == ("move", [])


def owner(console: Client, key_group: str) -> str | None:
    """Who owns it by the published placement."""
    app, operator, partition = key_group.split("/")
    rows = console.placement(app, operator=operator)
    return next(row.owner for row in rows if row.partition == int(partition))
