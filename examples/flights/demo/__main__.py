"""`python -m flights.demo [--out FOLDER] [--collocate] [--keep]`: run, check, write summary and picture.

The exit code is 0 unless data is wrong.
"""

import argparse
import json
import platform
import shutil
import signal
import sys
import time
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from flights.cpu import CpuMeter
from flights.demo.evidence import Evidence, gather
from flights.demo.loads import windows_inside
from flights.demo.picture import Drawn, draw
from flights.demo.scenario import DemoSettings, Scenario, sandbox_settings
from flights.demo.summary import Course, summary
from flights.demo.view import View, closing, collocated
from flights.producer import NotDelivered
from flights.steered_run import RunError
from trimtab_controller.jars.fetching import JarError, broker_version
from trimtab_controller.jars.java import JavaMissingError
from trimtab_protocol.messages.names import WorkerId
from trimtab_sandbox.broker import BrokerError
from trimtab_sandbox.cluster import ClusterError, SandboxCluster
from trimtab_sandbox.configuration import worker_name

OUT = Path("out", "demo")
OPENING = """\
Starting a Kafka broker, four Faust workers with an agent each, Spark and the controller, all on this machine.
Then real flights flow through them: the controller balances the workers and follows a shift of the load. The load
triples: it starts a fifth worker in time, and drains and stops it when the load has fallen back.
It takes 5 to 6 minutes. Ctrl-C ends everything that was started."""
COLLOCATION = """\
After that one topic becomes local: the controller learns what this saves, and brings together key groups that exchange
flights. That takes 3 to 5 minutes more, and its figures mean something on a quiet machine only."""
NEXT = """\
What to try next, in the same folder:
  PATH="$PWD/.venv/bin:$PATH"
  trimtab sandbox up --act          the same cluster, with a load that shifts and a console; it keeps running
    --env FLIGHTS_LOCAL=1           with a local topic: what stays on a worker skips the broker
  CONFIG=out/sandbox/controller/controller.toml
  trimtab status --config $CONFIG   what the controller sees and does
  trimtab plan --config $CONFIG     what it would do now
  trimtab drain w3 --config $CONFIG --reason "kernel update"
                                    empties a worker and stops it, for maintenance
  trimtab undrain w3 --config $CONFIG
                                    starts it again
  trimtab doctor --config $CONFIG   whether everything is as it should be
  trimtab sandbox down
For your own app: README.md."""
WIDTH = 138
"""Columns when the output is not a terminal."""


def main() -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m flights.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="folder for summary, picture and logs")
    parser.add_argument("--keep", action="store_true", help="stay up when all has been shown, until Ctrl-C")
    parser.add_argument("--collocate", action="store_true", help="make a topic local at the end, 3 to 5 minutes more")
    given = parser.parse_args()
    out: Path = given.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print("\n".join([OPENING, *([COLLOCATION] if given.collocate else [])]), markup=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        document = run(out, DemoSettings(keep=given.keep, collocate=given.collocate), console)
    except (RunError, NotDelivered, ClusterError, BrokerError, JarError, JavaMissingError) as error:
        console.print(f"the demo failed: {error}\nlogs: {out / 'sandbox' / 'logs'}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; all started processes have ended")
        return 130
    (out / "summary.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    console.print(closing(document))
    console.print(
        f"\npicture of the loads: {out / 'load.png'}\nall figures: {out / 'summary.json'}\n"
        f"logs: {out / 'sandbox' / 'logs'}\n\n{NEXT}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return 1 if document["broken"] else 0


def run(out: Path, settings: DemoSettings, console: Console) -> dict[str, object]:
    """Run the demo; returns its summary."""
    started_at, cluster = time.time(), SandboxCluster(sandbox_settings(settings), out / "sandbox")
    console.print(f"logs: {cluster.logs}", markup=False)
    with cluster, CpuMeter(lambda: cluster.pids) as meter:
        with View(console) as view:
            outcome = Scenario(cluster, settings, view).play()
        evidence = gather(cluster.broker.address, cluster.topics, outcome.sent)
    left = cluster.left_over()
    course = Course(
        started_at=started_at,
        seconds=time.time() - started_at,
        versions={
            "kafka": broker_version(),
            "spark": version("pyspark"),
            "faust": version("faust-streaming"),
            "python": platform.python_version(),
        },
        capacities={
            WorkerId(worker_name(index)): share for index, share in enumerate((*settings.capacities, settings.spare))
        },
        window_s=settings.window_s,
        phases=outcome.phases,
        rounds=outcome.rounds,
        calm=outcome.calm,
        scaled=outcome.scaled,
        collocated=outcome.collocated,
        stay=evidence.stays.get(outcome.scaled.worker),
        cpu_seconds={part.value: seconds for part, seconds in meter.seconds().items()},
        processes_left=left.processes,
        ports_left=left.ports,
    )
    document = summary(course, evidence)
    together = document["collocated"]
    draw(drawn(evidence, course, collocated(together) if together else ""), out / "load.png")
    return document


def drawn(evidence: Evidence, course: Course, saved: str) -> Drawn:
    """What the picture shows: the time with flights."""
    changes = []
    if course.stay is not None:
        changes.append((course.stay.started_at, f"{course.scaled.worker} started"))
        if course.stay.stopped_at is not None:
            changes.append((course.stay.stopped_at, f"{course.scaled.worker} stopped"))
    return Drawn(
        started_at=course.started_at,
        snapshots=windows_inside(evidence.snapshots, course.loaded[0], float("inf")),
        handovers=[handover.end for handover in evidence.handovers],
        phases=course.phases[1:],
        changes=changes,
        draining_at=course.draining_at,
        saved=saved,
    )


if __name__ == "__main__":
    sys.exit(main())
