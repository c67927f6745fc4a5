"""Looks at the console in a real browser beside a real cluster: every page loads clean, and live values arrive."""

import json
import re
import time
import urllib.request
from typing import Any

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.paths import ROOT
from tests.programs import program
from trimtab_sandbox.cluster import Cluster

SCREENSHOTS = ROOT / "out" / "console"
LIMIT_MS = 60_000
PAGES = {"cluster": "Workers by host", "app": "Key groups by load", "plan": "Plans", "health": "What is missing"}


def ask(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"{address}/api/v1/{path}", timeout=10) as answer:
        return json.load(answer)


def wait_for_windows(address: str, workers: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            found = ask(address, "cluster")
            if found["totals"] and found["totals"]["running"] == workers and ask(address, "apps")["items"]:
                return
        except OSError:
            pass  # it is not listening yet, or nothing is known
        time.sleep(0.3)
    pytest.fail("no window with all workers came")


def check_pages(cluster: Cluster) -> None:
    """Load every page of a console beside this cluster; nothing is amiss, and live values arrive."""
    browser_path = program("chromium")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    address = cluster.start_console().rstrip("/")
    with sync_playwright() as playwright:
        wait_for_windows(address, cluster.settings.workers)
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda sent: None if sent.url.startswith(address) else faults.append(sent.url))
        for name, heading in PAGES.items():
            page.goto(f"{address}/#/{name}")
            expect(page.get_by_role("heading", name=heading).first).to_be_visible(timeout=LIMIT_MS)
            page.wait_for_selector("main[data-version]")
            page.screenshot(path=SCREENSHOTS / f"{name}-sandbox.png", full_page=True)
        see_live_values(page, address)
        browser.close()
    assert faults == []
    assert cluster.stop("console") == 0


def see_live_values(page: Page, address: str) -> None:
    """The cluster's page shows the API's values, and a newer version without being loaded again."""
    page.goto(f"{address}/#/cluster")
    expect(page.locator("#state")).to_have_text("acting", timeout=LIMIT_MS)
    names = [row["worker"] for row in ask(address, "workers")["items"]]
    expect(page.locator(".tile .value").first).to_have_text(str(len(names)), timeout=LIMIT_MS)
    expect(page.locator("#age")).to_have_text(re.compile(r"leads · window \d+ s old"))
    before = page.locator("main").get_attribute("data-version") or ""
    expect(page.locator("main")).not_to_have_attribute("data-version", before, timeout=LIMIT_MS)
    assert int(page.locator("main").get_attribute("data-version") or 0) > int(before)
    for name in names:
        expect(page.get_by_role("cell", name=name, exact=True)).to_be_visible()
    page.locator("canvas.bars").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".said").first).to_contain_text(f"{names[0]} on ")
