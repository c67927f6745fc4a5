"""Measures the console with a large cluster: reading, memory, and the first view, at the server and in a browser.

    python -m benchmarks.console_view [--workers 10000] [--key-groups 1000000] [--rounds 5]

The messages are those of a made-up cluster, as they are on the topics.  A console's process of its own reads them from
a file, so that its memory is that of a console; the time to fetch them from Kafka is not in it.  Server: the requests
of a page, one after the other, the median of the rounds.  Browser: each time in a new window without a cache, the
median of the rounds; Chromium runs on the same machine.  *First view* is the page's own part, by the browser's clock:
from the start of the navigation until the frame after the one with all values.  *Reloaded* is the same of a reload in
that window, with what it keeps.  *With the window* adds what Chromium needs for a new window and its process, and what
Playwright adds.  The page's parts are those of the Navigation, Paint
and Resource Timing and of the browser's own counters.
"""

import argparse
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import psutil
import uvicorn
from playwright.sync_api import Browser, sync_playwright

from tests.console.fleet import APP, NOW, TOPICS, Fleet, source_of
from tests.kafka_record import Record
from tests.programs import program
from trimtab_console.guard import PER_S
from trimtab_console.server import application
from trimtab_console.watch import Watch
from trimtab_protocol.messages.names import MAX_PARTITIONS, OperatorId
from trimtab_protocol.messages.owner_rows import PART_SIZE
from trimtab_protocol.messages.placement_parts import records_of
from trimtab_sandbox.broker import free_ports

START_LIMIT_S = 300.0
PATIENCE_MS = 60_000
BARS, CELLS = 480, 9_000
"""What a window of 1,280 pixels asks for."""
PAGES = {
    "cluster": ("cluster", f"workers/bars?most={BARS}", "apps", "workers?order=demand&limit=12", "decisions?limit=6",
                f"apps/{APP}/history", "zones?limit=1000", "hosts?order=demand&limit=12"),
    "app": ("cluster", "apps", f"apps/{APP}/operators", f"apps/{APP}/flows?limit=1000",
            f"apps/{APP}/operators/o0/map?cells={CELLS}",
            f"apps/{APP}/operators/o0/key-groups?order=load&limit=10"),
}  # fmt: skip
"""Page -> what it asks for."""


def main() -> int:
    """Print the figures of a small cluster, for comparison, and of the large one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--key-groups", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.port)
        return 0
    for workers, key_groups in ((4, 64), (given.workers, given.key_groups)):
        print(f"{workers} workers, {key_groups} key groups", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "records"
            with file.open("wb") as opened:
                pickle.dump(records(workers, key_groups), opened)
            measure(file, given.rounds)
    return 0


def records(workers: int, key_groups: int) -> list[Record]:
    """The messages of a cluster; no operator has more than MAX_PARTITIONS key groups."""
    count = -(-key_groups // MAX_PARTITIONS)
    names = tuple(OperatorId(f"o{number}") for number in range(count))
    fleet = Fleet(workers=workers, key_groups=key_groups, operators=names)
    parts = [Record(TOPICS.placement, value, key) for key, value in records_of(fleet.placement(PART_SIZE), None)]
    return [*fleet.records(), *parts]


def serve(file: Path, port: int) -> None:
    """Read the messages, say how long that took, and serve."""
    with file.open("rb") as opened:
        read: list[Record] = pickle.load(opened)
    watch = Watch(TOPICS, lambda: NOW)
    began, used = time.perf_counter(), time.process_time()
    while read:
        watch.take(read.pop(0))
    took, used = time.perf_counter() - began, time.process_time() - used
    assert watch.known.snapshot is not None, watch.known.rejected
    watch.set_reading(read=True, fault=None)
    print(f"{took:.2f} s, of which CPU {used:.2f} s", flush=True)
    uvicorn.run(application(source_of(watch)), host="127.0.0.1", port=port, log_level="error")


def measure(file: Path, rounds: int) -> None:
    """Start the console, look at it, and end it."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "benchmarks.console_view", "--serve", str(file), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
        try:
            assert console.stdout is not None
            print(f"reading the messages: {console.stdout.readline().strip()}")
            address = f"http://127.0.0.1:{port}"
            wait_for(address)
            for name, paths in PAGES.items():
                took = median(rounds, partial(ask, address, paths))
                print(f"{name}, requests at the server: {took:.2f} s")
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=program("chromium"), args=["--no-sandbox"])
                for name in PAGES:
                    views = [view(browser, f"{address}/#/{name}") for _ in range(rounds)]
                    print(f"{name}, in Chromium: {told(views)}")
                browser.close()
            memory = psutil.Process(console.pid).memory_info().rss
            print(f"memory of the console: {memory / 1e6:.0f} MB")
        finally:
            console.terminate()


def wait_for(address: str) -> None:
    """Wait until the console answers."""
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            ask(address, ["cluster"])
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def ask(address: str, paths: Iterable[str]) -> None:
    """Read these resources."""
    for path in paths:
        with urllib.request.urlopen(f"{address}/api/v1/{path}", timeout=60) as answer:
            answer.read()


SHOWN = """
new MutationObserver((seen, observer) => {
  if (!document.querySelector("main[data-version]")) return;
  observer.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.shown = performance.now(); }));
}).observe(document, { subtree: true, childList: true, attributeFilter: ["data-version"] });
"""
"""Notes in the page when the values are there and have been drawn."""
PARTS = """async () => {
  while (!window.shown) await new Promise(requestAnimationFrame);
  const resources = performance.getEntriesByType("resource");
  const scripts = resources.filter((each) => each.name.endsWith(".js"));
  const answers = resources.filter((each) => each.name.includes("/api/") && each.responseEnd <= window.shown);
  const last = (rows) => Math.max(0, ...rows.map((each) => each.responseEnd));
  return {
    "first view": window.shown,
    "first paint": performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0,
    "scripts are there": last(scripts),
    "answers are there": last(answers),
    "requests": resources.filter((each) => each.startTime <= window.shown).length + 1,
  };
}"""
COUNTERS = {"ScriptDuration": "of it script", "LayoutDuration": "layout", "RecalcStyleDuration": "style"}
"""Seconds of the page's process, by the DevTools protocol."""


def view(browser: Browser, address: str) -> dict[str, float]:
    """Open a page and wait for its values; name -> seconds, and the number of its requests."""
    began = time.perf_counter()
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    try:
        page.add_init_script(SHOWN)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        page.goto(address, wait_until="commit")
        page.wait_for_selector("main[data-version]", timeout=PATIENCE_MS)
        found: dict[str, float] = page.evaluate(PARTS)
        took = time.perf_counter() - began
        counted = {row["name"]: row["value"] for row in session.send("Performance.getMetrics")["metrics"]}
        page.reload(wait_until="commit")
        page.wait_for_selector("main[data-version]", timeout=PATIENCE_MS)
        again: dict[str, float] = page.evaluate(PARTS)
    finally:
        page.close()
    time.sleep((found["requests"] + again["requests"]) / PER_S)  # it asks no faster than one address may
    parts = {name: value if name == "requests" else value / 1000 for name, value in found.items()}
    return {
        **parts,
        **{name: counted[counter] for counter, name in COUNTERS.items()},
        "with the window": took,
        "reloaded": again["first view"] / 1000,
    }


def told(views: Sequence[Mapping[str, float]]) -> str:
    """The median of each part."""
    medians = {name: statistics.median(each[name] for each in views) for name in views[0]}
    lines = (
        f"{name} {value:.0f}" if name == "requests" else f"{name} {value:.2f} s" for name, value in medians.items()
    )
    return ", ".join(lines)


def median(rounds: int, work: Callable[[], None]) -> float:
    """Seconds, in the median."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


if __name__ == "__main__":
    raise SystemExit(main())
