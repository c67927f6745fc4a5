"""The console's dialogs on a real job, as an operator uses them in a browser."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.waiting import wait_for
from trimtab_client import Client

LIMIT_S = 240.0
"""How long a step may take on a busy machine: Spark or a worker starts."""


def opened(page: Page, button: str, title: str, **filled: str) -> Locator:
    """The dialog that this button opens, with these fields filled."""
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog", name=title)
    for label, value in filled.items():
        dialog.get_by_label(label, exact=True).fill(value)
    return dialog


def confirm(page: Page, button: str, title: str, telling: str, **filled: str) -> None:
    """Open the dialog, wait until it tells what would follow, give a reason, confirm and close."""
    finish(opened(page, button, title, **filled), title, telling)


def finish(dialog: Locator, title: str, telling: str) -> None:
    """Wait until the dialog tells what would follow, give a reason, confirm and close."""
    expect(dialog.locator(".told")).to_contain_text(telling)
    dialog.get_by_label("Reason").fill("by dialog")
    dialog.get_by_role("button", name=title.removesuffix("?"), exact=True).click()
    expect(dialog.get_by_text("done", exact=True)).to_be_visible()
    expect(dialog.get_by_text(telling).first).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def intents(console: Client) -> list[str]:
    """What operators have asked for, each as one line."""
    return [f"{row.kind} {row.about} by {row.by}: {row.reason}" for row in console.intents()]


def running(console: Client) -> int:
    """How many workers run."""
    totals = console.cluster().totals
    return totals.running if totals else 0


def the_app(console: Client) -> str:
    """The only app, as soon as a window shows it."""
    wait_for(lambda: list(console.apps()), "an app reports")
    (app,) = [row.app for row in console.apps()]
    return app


def keep_a_rule(page: Page, address: str, console: Client) -> None:
    """A rule is added with the fields that its kind has, is told by the controller, and is removed."""
    page.goto(f"{address}/#/rules")
    dialog = opened(page, "Add a rule", "Add a rule?", Name="stay")
    dialog.get_by_label("Kind", exact=True).select_option("freeze")
    expect(dialog.get_by_label("Workers", exact=True)).to_be_hidden()
    finish(dialog, "Add a rule?", "rule stay (freeze) is kept from the next window on")
    told = page.get_by_role("cell", name="stay", exact=True)
    expect(told).to_be_visible()
    assert [(row.name, row.kind, row.by) for row in console.rules()] == [("stay", "freeze", "sandbox")]
    confirm(page, "Remove the rule stay", "Remove the rule stay?", "rule stay is not kept any longer")
    expect(told).to_have_count(0)


def maintain(page: Page, address: str, console: Client) -> None:
    """A maintenance begins and ends by the buttons in the row of its host."""
    page.goto(f"{address}/#/cluster")
    (host, *_) = [row.host for row in console.hosts() if row.running]
    telling = f"maintenance of {host} for 2 h 0 min: 1 worker will be drained"
    confirm(page, f"Maintenance of {host}", f"Begin the maintenance of {host}?", telling)
    assert [row.host for row in console.hosts() if row.maintenance_until is not None] == [host]
    expect(page.get_by_text("maintenance until")).to_be_visible()
    telling = f"the maintenance of {host} ends"
    confirm(page, f"End the maintenance of {host}", f"End the maintenance of {host}?", telling)
    wait_for(lambda: intents(console) == [], "nothing is drained any longer")


def forget(page: Page, address: str, console: Client) -> None:
    """An app that runs is not forgotten; one that is gone is, and the page shows the controller's answer."""
    page.goto(f"{address}/#/health")
    app = the_app(console)
    dialog = opened(page, "Forget an app", "Forget an app?")
    expect(dialog.locator(".told")).to_have_text("Fill in the form to see what would follow.")
    dialog.get_by_label("App", exact=True).fill(app)
    expect(dialog.locator(".told")).to_contain_text(f"app {app} still runs")
    expect(dialog.get_by_role("button", name="Forget an app", exact=True)).to_be_disabled()
    page.keyboard.press("Escape")
    confirm(page, "Forget an app", "Forget an app?", "app gone will be forgotten with the next window", App="gone")
    answer = re.compile(r"app gone.*it had no placement, asked for by sandbox: by dialog")
    expect(page.get_by_text(answer).first).to_be_visible()
    wait_for(lambda: intents(console) == [], "the intent to forget is answered")


def stop(page: Page, address: str, console: Client) -> None:
    """The controller answers the wish to stop a plan, also when none is in flight any more."""
    page.goto(f"{address}/#/app")
    app = the_app(console)
    confirm(page, f"Stop the plan of {app}", f"Stop the plan of {app}?", "released key groups arrive")
    wait_for(lambda: intents(console) == [], "the intent to stop is answered")


def look_at_a_restart(page: Page, address: str, console: Client) -> None:
    """The dialog of a rolling restart says what would follow, or why nothing can while workers start; it is closed."""
    page.goto(f"{address}/#/app")
    app = the_app(console)
    title = f"Restart all workers of {app}?"
    dialog = opened(page, title.removesuffix("?"), title)
    answer = (
        rf"\d workers of {app} on \d hosts will be restarted, host by host"
        rf"|workers of {app} that run and can be restarted: \d, expected 2 to"
    )
    expect(dialog.locator(".told")).to_contain_text(re.compile(answer))
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert not [line for line in intents(console) if line.startswith("rolling restart")]


def scale(page: Page, address: str, console: Client, workers: int) -> None:
    """The controller has an agent start a worker of the pool."""
    page.goto(f"{address}/#/app")
    app = the_app(console)
    telling = f"{app} will have {workers} workers"
    confirm(page, f"Scale {app}", f"Scale {app}?", telling, Workers=str(workers))
    assert intents(console) == [f"scale {app} by sandbox: by dialog"]
    wait_for(lambda: running(console) == workers, f"{workers} workers run")
    page.goto(f"{address}/#/cluster")
    expect(page.locator(".tile .value").first).to_have_text(str(workers))


def unscale(page: Page, address: str, console: Client) -> None:
    """The size follows the demand again."""
    app = the_app(console)
    page.goto(f"{address}/#/app")
    button = f"Let the size of {app} follow its demand"
    confirm(page, button, f"{button}?", f"the size of {app} follows its demand again")
    assert intents(console) == []
