"""Looks at the console in a real browser beside a real cluster: pages load clean, and operators act from them."""

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from flights.dataset import read_flights
from flights.producer import FlightProducer
from flights.wire import EXTRACT, SUMS
from tests.e2e.console_dialogs import (
    forget,
    keep_a_rule,
    look_at_a_restart,
    maintain,
    scale,
    stop,
    the_app,
    unscale,
)
from tests.paths import ROOT
from tests.programs import program
from tests.waiting import wait_for
from trimtab_client import Access, Client
from trimtab_sandbox.cluster import ConsoleAccess, SandboxCluster

SCREENSHOTS = ROOT / "out" / "console"
LIMIT_MS = 180_000
PAGES = {
    "cluster": "Workers by host",
    "app": "Key groups by load",
    "plan": "Plans",
    "events": "What happened",
    "why": "Which key group",
    "rules": "Rules",
    "health": "What is missing",
}
LOOKED_AT_LATER = {"app", "plan", "events", "why"}
"""Pages that are looked at when there is something on them."""
PHONE, WIDE = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
SERIOUS = {"moderate", "serious", "critical"}
REFUSED = re.compile(r"status of (409|422) ")
"""What Chromium notes of a dry run that is refused: on purpose, or as the form is not filled yet when it is sent."""
TRIMTAB = [sys.executable, "-c", "from trimtab_controller.cli import main; raise SystemExit(main())"]


class Asker:
    """The API, as a program with a token uses it."""

    def __init__(self, access: ConsoleAccess, token: str | None = None) -> None:
        self.address = access.address.rstrip("/")
        self._token = access.token if token is None else token

    def get(self, path: str) -> Any:
        return self.send("GET", path)[1]

    def send(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """The code and the document of the answer."""
        sent = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}/api/v1/{path}", data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def wait_for_windows(asker: Asker, workers: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            found = asker.get("cluster")
            if found["totals"] and found["totals"]["running"] == workers and asker.get("apps")["items"]:
                return
        except OSError:
            pass  # it is not listening yet
        except (KeyError, TypeError):
            pass  # nothing is known yet
        time.sleep(0.3)
    pytest.fail("no window with all workers came")


def check_pages(cluster: SandboxCluster) -> None:
    """Load every page of a console beside this cluster, act from them; nothing is amiss, and live values arrive."""
    browser_path = program("chromium")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=LIMIT_MS)
    access = cluster.start_console()
    asker = Asker(access)
    with sync_playwright() as playwright:
        wait_for_windows(asker, len(cluster.settings.started))
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        faults: list[str] = []
        follow_the_link(browser, access.link)
        page = new_page(browser, asker.address, faults)
        log_in(page, access)
        for name, heading in PAGES.items():
            page.goto(f"{asker.address}/#/{name}")
            expect(page.get_by_role("heading", name=heading).first).to_be_visible()
            page.wait_for_selector("main[data-version]")
            if name not in LOOKED_AT_LATER:
                look(page, name)
        see_live_values(page, asker)
        act(page, asker)
        with Client(Access(address=asker.address, token=access.token)) as console:
            keep_a_rule(page, asker.address, console)
            maintain(page, asker.address, console)
            forget(page, asker.address, console)
            stop(page, asker.address, console)
            scale(page, asker.address, console, cluster.settings.workers)
            look_at_a_restart(page, asker.address, console)
            see_moves(page, asker, console)
            unscale(page, asker.address, console)
            app = the_app(console)
        see_events(page, asker)
        see_why(page, asker, app)
        see_flows(page, asker, app, cluster.broker.address)  # last: with load there may be plans
        browser.close()
    assert [fault for fault in faults if not REFUSED.search(fault)] == [], faults
    check_rights(cluster, access)
    assert cluster.stop("console") == 0


def new_page(browser: Browser, address: str, faults: list[str]) -> Page:
    """A page whose faults, and requests to elsewhere, are noted."""
    page = browser.new_page(viewport=WIDE)  # type: ignore[arg-type]
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda sent: None if sent.url.startswith(address) else faults.append(sent.url))
    return page


def log_in(page: Page, access: ConsoleAccess) -> None:
    """By the form, out again, then by the link, whose token is gone from the address at once."""
    page.goto(access.address)
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    look(page, "login")
    page.get_by_label("Token", exact=True).fill(access.token)
    page.keyboard.press("Enter")
    expect(page.locator("#who")).to_have_text("sandbox (operator)")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.goto(access.link)
    expect(page.locator("#who")).to_have_text("sandbox (operator)")
    assert page.url == f"{access.address}#/cluster"


def follow_the_link(browser: Browser, link: str) -> None:
    """The printed link logs in a browser that has never been here; over a login it asks first, and it says if unfit."""
    expect.set_options(timeout=LIMIT_MS)
    address, _, _ = link.partition("#")
    faults: list[str] = []
    page = new_page(browser, address, faults)
    page.goto(link)
    expect(page.locator("#who")).to_have_text("sandbox (operator)")
    expect(page.get_by_role("heading", name="Workers by host")).to_be_visible()
    assert page.url == f"{address}#/cluster"
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    page.once("dialog", stay)
    page.goto("about:blank")
    page.goto(f"{address}#token=%")
    expect(page.locator("#who")).to_have_text("sandbox (operator)")
    assert asked == ["You are logged in as sandbox. Log in with the token of this link instead?"]
    assert faults == []
    page.close()
    page = new_page(browser, address, faults)
    page.goto(f"{address}#token=%")
    expect(page.get_by_text("The token in the address is not accepted")).to_be_visible()
    page.close()


def look(page: Page, name: str) -> None:
    """Keep pictures, wide and light, and dark on a phone; nothing hinders people with poor sight or a screen reader."""
    for scheme, size, rules in (("dark", PHONE, ["color-contrast"]), ("light", WIDE, None)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size(size)  # type: ignore[arg-type]
        page.screenshot(path=SCREENSHOTS / f"{name}-{scheme}.png", full_page=True)
        options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
        found = Axe().run(page, options=options).response["violations"]
        told = [(row["id"], [node["html"] for node in row["nodes"]]) for row in found if row["impact"] in SERIOUS]
        assert told == [], f"{name}, {scheme}"


def see_live_values(page: Page, asker: Asker) -> None:
    """The cluster's page shows the API's values, and a newer version without being loaded again."""
    page.goto(f"{asker.address}/#/cluster")
    expect(page.locator("#state")).to_have_text("acting")
    names = [row["worker"] for row in asker.get("workers")["items"]]
    running = asker.get("cluster")["totals"]["running"]
    expect(page.locator(".tile .value").first).to_have_text(f"{running}of {len(names)}")
    expect(page.locator("#age")).to_have_text(re.compile(r"leads · window \d+ s old"))
    before = page.locator("main").get_attribute("data-version") or ""
    expect(page.locator("main")).not_to_have_attribute("data-version", before)
    assert int(page.locator("main").get_attribute("data-version") or 0) > int(before)
    for name in names:
        expect(page.get_by_role("cell", name=name, exact=True)).to_be_visible()
    find = page.get_by_label("Find workers by name")
    find.fill("nobody")
    expect(page.get_by_text("There is no such worker")).to_be_visible()
    find.fill("")
    page.locator("canvas.bars").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".said").first).to_contain_text(f"{names[0]} on ")


def act(page: Page, asker: Asker) -> None:
    """Pause by keyboard, and resume; a drain's dialog tells what would follow, and closed it changes nothing."""
    page.get_by_role("button", name="Pause", exact=True).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Pause?")
    expect(dialog.get_by_text("a plan in flight is finished")).to_be_visible()
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("kernel update")
    page.keyboard.press("Enter")
    expect(dialog.get_by_text("done")).to_be_visible()
    page.keyboard.press("Enter")  # Close
    expect(dialog).to_have_count(0)
    expect(page.locator("#state")).to_have_text("paused")
    intents = [(row["kind"], row["by"], row["reason"]) for row in asker.get("intents")["items"]]
    assert intents == [("pause", "sandbox", "kernel update")]

    page.get_by_role("button", name=re.compile("^Drain ")).first.click()
    dialog = page.get_by_role("dialog", name=re.compile("^Drain "))
    expect(dialog.get_by_text("but the controller is paused: the drain starts after")).to_be_visible()
    look(page, "dialog")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name=re.compile("^Drain ")).first).to_be_focused()

    page.get_by_role("button", name="Resume").click()
    page.get_by_label("Reason").fill("done")
    page.get_by_role("button", name="Resume").last.click()
    expect(page.get_by_text("the controller decides again")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#state")).to_have_text("acting")
    assert asker.get("intents")["items"] == []


def see_flows(page: Page, asker: Asker, app: str, broker: str) -> None:
    """What operators send to each other is drawn, and a table has the values of the API."""
    with FlightProducer(broker, list(read_flights(limit=20_000)), key_groups=64, rate=100.0):
        wait_for(lambda: asker.get(f"apps/{app}/flows")["items"], "a window has flows")
        (flow,) = asker.get(f"apps/{app}/flows")["items"]
        assert (flow["source"], flow["target"]) == (EXTRACT, SUMS)
        assert min(flow["tuples_s"], flow["bytes_s"], flow["pairs"]) > 0
        assert 0.0 <= flow["collocation"] <= 1.0
        page.goto(f"{asker.address}/#/app")
        expect(page.get_by_role("img", name="Flows between 2 operators")).to_be_visible()
        told = page.get_by_role("group", name="Flows", exact=True)
        for name in (EXTRACT, f"→ {SUMS}"):
            expect(told.get_by_role("cell", name=name, exact=True)).to_be_visible()
        look(page, "app")


def see_moves(page: Page, asker: Asker, console: Client) -> None:
    """The moves of a plan are drawn from worker to worker, and can be read as a table."""
    app = the_app(console)

    def others() -> list[str]:
        return [row.worker for row in console.why(app, SUMS, 0).targets if not row.owner and not row.forbidden]

    wait_for(others, "another worker can take it")
    found = console.why(app, SUMS, 0)
    (target,) = others()
    console.move([found.key_group], target, reason="to see it")
    wait_for(lambda: console.why(app, SUMS, 0).owner == target, "the key group has moved")
    page.goto(f"{asker.address}/#/plan/{console.why(app, SUMS, 0).plan}")
    expect(page.get_by_role("img", name="1 key group moves from 1 to 1 worker")).to_be_visible()
    page.get_by_text("The same as a table").focus()
    page.keyboard.press("Enter")
    told = page.get_by_role("group", name="Moves from worker to worker")
    for name in (found.owner, f"→ {target}", "1 done"):
        expect(told.get_by_role("cell", name=name, exact=True)).to_be_visible()
    look(page, "plan")


def see_events(page: Page, asker: Asker) -> None:
    """What the dialogs have brought is told, and can be filtered by kind."""
    page.goto(f"{asker.address}/#/events")
    expect(page.get_by_text(", by sandbox: kernel update")).to_be_visible()
    expect(page.get_by_text("leads as generation")).to_be_visible()
    page.get_by_role("button", name="intent", exact=True).click()
    expect(page.get_by_text("leads as generation")).to_have_count(0)
    expect(page.get_by_text(re.compile("pause is taken back by sandbox"))).to_be_visible()
    expect(page.get_by_text(re.compile("stop the plan of .+, by sandbox: by dialog"))).to_be_visible()
    page.get_by_label("Find events by a part of their text").fill("By Dialog")
    expect(page.get_by_text(re.compile("pause is taken back by sandbox"))).to_have_count(0)
    expect(page.get_by_text(re.compile("stop the plan of .+, by sandbox: by dialog"))).to_be_visible()
    look(page, "events")
    told = [(row["kind"], row["phase"]) for row in asker.get("events?limit=1000")["items"]]
    assert {("leader", "begun"), ("decision", "skip"), ("decision", "adopt"), ("intent", "ended")} <= set(told)


def see_why(page: Page, asker: Asker, app: str) -> None:
    """Of a key group: where it is, and what each other worker would make of it."""
    wait_for(lambda: asker.get(f"apps/{app}/operators"), "its operators are known")
    hottest = asker.get(f"apps/{app}/operators")[0]["operator"]
    found = asker.get(f"why/{app}/{hottest}/0")
    assert found["owner"] is not None
    page.goto(f"{asker.address}/#/why")
    page.get_by_role("textbox").fill(f"{app}/{hottest}/0")
    page.keyboard.press("Enter")
    expect(page.locator(".tile .value").first).to_have_text(found["owner"])
    expect(page.get_by_role("cell", name="it is here")).to_be_visible()
    for row in found["targets"]:
        expect(page.get_by_role("cell", name=row["worker"], exact=True)).to_be_visible()
    look(page, "why")


def check_rights(cluster: SandboxCluster, access: ConsoleAccess) -> None:
    """By the API: a dry run, a drain and its end; viewers, strangers and other sites change nothing."""
    asker = Asker(access)
    body = {"worker": asker.get("workers")["items"][0]["worker"], "reason": "test"}
    code, found = asker.send("POST", "intents/drain", {**body, "dry_run": True})
    assert (code, found["written"], asker.get("intents")["total"]) == (200, False, 0)
    for key, action, intents in (("1", "drain", 1), ("2", "undrain", 0)):
        answers = [asker.send("POST", f"intents/{action}", body, idempotency_key=key) for _ in range(2)]
        assert answers[0] == answers[1]
        assert (answers[0][0], answers[0][1]["written"]) == (200, True), answers
        assert asker.get("intents")["total"] == intents
    made = subprocess.run(
        [*TRIMTAB, "console", "token", "vera", "--config", str(Path(cluster.folder, "console", "console.toml"))],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    viewer = Asker(access, made.stdout.strip())
    assert viewer.get("cluster")["state"] == "acting"
    for each, headers, code in (
        (viewer, {}, 403),
        (Asker(access, "wrong"), {}, 401),
        (asker, {"origin": "https://evil.example"}, 403),
        (asker, {"sec_fetch_site": "cross-site"}, 403),
    ):
        assert each.send("POST", "intents/drain", body, idempotency_key="3", **headers)[0] == code
    assert asker.get("intents")["total"] == 0
    log = (cluster.logs / "console.log").read_text()
    assert "event=change who=sandbox" in log
    assert access.token not in log
