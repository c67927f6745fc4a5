"""Measures the time to the first decision: `python -m benchmarks.first_decision [--runs N] [--windows N]`.

A real broker, hosts that report every second, and the controller with its own Spark, as operators run it.  Each run has
three starts, with windows of 5 s (`--window-s`):

- cold: the first controller of a cluster;
- restart: the same controller, stopped and started again;
- takeover: `kill -9` of the leader while another controller stands by; the time counts from the kill.

The table has the seconds from the start to each phase, and the CPU seconds, which a busy machine changes less.  A
decision counts as the first one when it is about fresh measurements, neither `no_snapshot` nor `stale_snapshot`.  The
first plan is listed separately, because it also needs `min_windows`.  The load becomes uneven at each start, so that
there is something to plan.

Then a dry run of another cluster makes a plan for each of `--windows` windows.  The output has the seconds from the end
of a window to its snapshot and to its plan.
"""

import argparse
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.reports import host_report, running_worker
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.commands import Ack, Command, CommandKind, Phase, Refusal
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId, Topics, WorkerId, topic_settings
from trimtab_protocol.messages.report import KeyGroupSample
from trimtab_sandbox.broker import Broker, Topic
from trimtab_sandbox.processes import Child, Processes

CLUSTER, APP, OPERATOR = "bench", AppId("app"), OperatorId("sums")
HOSTS, KEY_GROUPS = 4, 64
LEASE_S = 6.0
LIMIT_S = 240.0
SETTLE_S = 15.0
"""How long a standby and the leader run beside each other before the takeover, under an even load."""
WARM_WINDOWS = 6
"""Number of first windows that are not measured, because Spark is still compiling."""
CONTROLLER = [sys.executable, "-c", "from trimtab_controller.cli import main; raise SystemExit(main())"]
PHASES: Mapping[str, str] = {
    "the controller's first line": r" INFO ",
    "leader": r" INFO leader of cluster ",
    "state recovered, acting": r" INFO acting as generation ",
    "stream's process started": r" INFO started the stream as process ",
    "Spark's session is open": r" INFO Spark's session ",
    "query started": r" INFO reading ",
    "first snapshot": r" INFO published ",
    "first decision": r" INFO (?!.*the (stream has not|last window ended))(nothing:|plan \S+:|app:)",
    "first plan": r" INFO plan \S+: app: ",
}
"""Name of each phase -> the line of the log with which it ends."""
CPU = "CPU seconds until then"
"""Of the controller and all its children since their start; unlike the others, valid on a busy machine."""
STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ")


class Fleet:
    """Hosts that report every second, each at its own moment; with `skewed` set, one has three times the load."""

    def __init__(self, broker: Broker) -> None:
        self.skewed = threading.Event()
        self._producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
        settings = {"bootstrap.servers": broker.address, "group.id": "bench", "isolation.level": "read_committed"}
        self._consumer = Consumer(settings)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Report during the context."""
        self._thread.start()
        try:
            yield
        finally:
            self._done.set()
            self._thread.join()
            self._consumer.close()

    def _run(self) -> None:
        due_ms = int(time.time()) * 1000 + 1000
        self._consumer.assign([TopicPartition(Topics(CLUSTER).commands, 0, 0)])
        while True:
            self._refuse()
            for host in range(HOSTS):
                at_ms = due_ms + host * 1000 // HOSTS
                if self._done.wait(max(0.0, at_ms / 1000 - time.time())):
                    return
                self._producer.produce(
                    Topics(CLUSTER).reports, report(host, at_ms, skewed=self.skewed.is_set()), f"h{host}"
                )
                self._producer.poll(0)
            due_ms += 1000

    def _refuse(self) -> None:
        """Refuse whatever is to be prepared, so that nothing moves."""
        for message in self._consumer.consume(100, timeout=0):
            if message.error() is None and (command := decoded(message.value(), Command)).kind is CommandKind.PREPARE:
                ack = Ack.to(command, Phase.REFUSED, at=time.time(), refusal=Refusal.GUARD)
                self._producer.produce(Topics(CLUSTER).acks, encoded(ack), command.host)


def report(host: int, at_ms: int, *, skewed: bool) -> bytes:
    """What a host reports in a second; `skewed`: the first one has three times the load."""
    own = range(host, KEY_GROUPS, HOSTS)
    # It differs from second to second, so that no two plans have the same words and each is logged.
    factor = (3.0 if skewed and host == 0 else 1.0) * (1 + at_ms // 1000 % 7 / 100)
    rows = tuple(
        KeyGroupSample(
            key_group=KeyGroup(APP, OPERATOR, partition),
            worker=WorkerId(f"w{host}"),
            cpu_s=0.01 * factor * (1 + partition / KEY_GROUPS),
            tuples_in=100,
            state_bytes=1_000,
            backlog=0,
        )
        for partition in own
    )
    used_s = sum(row.cpu_s or 0.0 for row in rows)
    worker = running_worker(WorkerId(f"w{host}"), APP, used_s, steering=True, operators={OPERATOR: KEY_GROUPS})
    return host_report(CLUSTER, host, at_ms, worker, rows, cpu_s=used_s, link_bytes=None)


class Controllers:
    """Starts controllers and reads their logs."""

    def __init__(self, folder: Path, broker: Broker, processes: Processes, options: argparse.Namespace) -> None:
        self._folder = folder
        self._broker = broker
        self._processes = processes
        self._options = options
        self._count = 0
        self.cold_standby: bool = options.cold_standby

    def start(self, *, act: bool = True) -> Child:
        """Start another one, with a log of its own."""
        self._count += 1
        name = f"controller-{self._count}"
        file = self._folder / f"{name}.toml"
        file.write_text(self._configuration(name), encoding="utf-8")
        return self._processes.start(
            name, [*CONTROLLER, "controller", "run", *["--act"] * act, "--config", str(file)], folder=Path.cwd()
        )

    def _configuration(self, name: str) -> str:
        hosts = ", ".join(f'"h{host}"' for host in range(HOSTS))
        expected = "" if self._options.any_hosts else f"expected_hosts = [{hosts}]\n"
        return (
            f'[controller]\ncluster = "{CLUSTER}"\nlease_s = {LEASE_S}\n'
            f'[kafka]\nbootstrap_servers = "{self._broker.address}"\n'
            f"[stream]\nwindow_s = {self._options.window_s}\nwatermark_s = 2.0\n{expected}"
            f"warm_standby = {str(not self.cold_standby).lower()}\n"
            f'checkpoint_dir = "{self._folder / name}"\nspark = {{ "spark.master" = "local[2]" }}\n'
            f"[balance]\nload_distance = 2.0\nmin_interval_s = 1.0\n"
        )


def lines(child: Child) -> list[tuple[float, str]]:
    """The log: epoch seconds, and the line."""
    return [
        (datetime.strptime(stamp[1], "%Y-%m-%d %H:%M:%S,%f").timestamp(), line)
        for line in child.log.read_text(encoding="utf-8", errors="replace").splitlines()
        if (stamp := STAMP.match(line))
    ]


def phases(child: Child, since: float) -> dict[str, float]:
    """Seconds from `since` to each phase that a controller has reached; 0 for those before."""
    found = {}
    for name, pattern in PHASES.items():
        reached = [at for at, line in lines(child) if re.search(pattern, line)]
        if name in ("first snapshot", "first decision", "first plan"):
            reached = [at for at in reached if at >= since]
        if reached:
            found[name] = max(0.0, reached[0] - since)
    return found


def wait_for(what: str, child: Child, condition: Callable[[], bool]) -> None:
    """Wait until the condition holds.  Raises SystemExit."""
    limit = time.monotonic() + LIMIT_S
    while not condition():
        if not child.alive or time.monotonic() > limit:
            raise SystemExit(f"no {what}:\n" + "\n".join(line for _, line in lines(child)[-15:]))
        time.sleep(0.1)


def measured(child: Child, since: float) -> dict[str, float]:
    """The phases up to the first plan."""
    wait_for("plan", child, lambda: "first plan" in phases(child, since))
    return phases(child, since) | {CPU: sum(sum(each.cpu_times()[:2]) for each in tree(child))}


def starts(controllers: Controllers, fleet: Fleet) -> Iterator[tuple[str, dict[str, float]]]:
    """The phases of a cold start, of a restart, and of a takeover."""
    fleet.skewed.set()
    for kind in ("cold", "restart"):
        began = time.time()
        leader = controllers.start()
        yield kind, measured(leader, began)
        if kind == "cold":
            leader.stop()
    fleet.skewed.clear()
    standby = controllers.start()
    sign = "standby: waiting" if controllers.cold_standby else "standby: the stream is warm"
    wait_for("standby", standby, lambda: any(sign in line for _, line in lines(standby)))
    time.sleep(SETTLE_S)
    yield "standby", cost(standby)
    fleet.skewed.set()
    began = time.time()
    leader.kill()
    yield "takeover", measured(standby, began)
    standby.stop()


def tree(child: Child) -> list[psutil.Process]:
    """A controller with its children."""
    process = psutil.Process(child.pid)
    return [process, *process.children(recursive=True)]


def cost(child: Child, seconds: float = 10.0) -> dict[str, float]:
    """Memory and CPU of a controller with its children."""

    def used() -> float:
        return sum(sum(each.cpu_times()[:2]) for each in everyone)

    everyone = tree(child)
    before = used()
    time.sleep(seconds)
    memory = sum(each.memory_info().rss for each in everyone)
    return {"resident memory, GB": memory / 1e9, "cores": (used() - before) / seconds}


def to_plan(controllers: Controllers, fleet: Fleet, windows: int) -> dict[str, list[float]]:
    """Seconds from the end of each window to its snapshot and to its plan, in a dry run."""
    fleet.skewed.set()
    child = controllers.start(act=False)

    def found() -> dict[str, list[float]]:
        delays: dict[str, list[float]] = {"snapshot": [], "plan": []}
        end_s = published_s = 0.0
        for at, line in lines(child):
            if published := re.search(r" INFO published end_ms=(\d+)", line):
                end_s, published_s = int(published[1]) / 1000, at
            elif " INFO dry run, would do: " in line and end_s:
                delays["snapshot"].append(published_s - end_s)
                delays["plan"].append(at - end_s)
        return delays

    wait_for("plans", child, lambda: len(found()["plan"]) >= windows + WARM_WINDOWS)
    child.stop()
    return {name: delays[WARM_WINDOWS:] for name, delays in found().items()}


def print_table(found: Mapping[str, list[dict[str, float]]]) -> None:
    """Medians over the runs: a line per phase, a column per start."""
    kinds = [kind for kind in found if kind != "standby"]
    print(f"\nseconds from the start, medians of {len(found[kinds[0]])}")
    print(f"{'':30}" + "".join(f"{kind:>10}" for kind in kinds))
    for phase in (*PHASES, CPU):
        cells = [[row[phase] for row in found[kind] if phase in row] for kind in kinds]
        print(f"{phase:30}" + "".join(f"{statistics.median(cell):10.1f}" if cell else f"{'-':>10}" for cell in cells))
    costs = found["standby"]
    told = ", ".join(f"{statistics.median(row[name] for row in costs):.2f} {name}" for name in costs[0])
    print(f"a standby takes {told}")


@contextmanager
def cluster(options: argparse.Namespace) -> Iterator[tuple[Controllers, Fleet]]:
    """A new cluster whose hosts report."""
    with tempfile.TemporaryDirectory() as name, Processes(Path(name) / "logs") as processes:
        folder = Path(name)
        with Broker(folder / "broker", processes) as broker:
            broker.create_topics(
                [
                    Topic(name=each.name, partitions=each.partitions, settings=each.configuration)
                    for each in topic_settings(Topics(CLUSTER))
                ]
            )
            fleet, controllers = Fleet(broker), Controllers(folder, broker, processes, options)
            with fleet.reporting():
                yield controllers, fleet


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="clusters in which each start is measured (3)")
    parser.add_argument("--windows", type=int, default=24, help="windows from whose end to the plan is measured (24)")
    parser.add_argument("--window-s", type=float, default=5.0, help="length of a window (5)")
    parser.add_argument("--any-hosts", action="store_true", help="without a list of expected hosts")
    parser.add_argument("--cold-standby", action="store_true", help="with warm_standby = false")
    parser.add_argument("--only-plans", action="store_true", help="measure no starts")
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    for run in range(0 if options.only_plans else options.runs):
        with cluster(options) as (controllers, fleet):
            for kind, row in starts(controllers, fleet):
                found.setdefault(kind, []).append(row)
                figures = ", ".join(f"{name} {figure:.1f}" for name, figure in row.items())
                print(f"run {run + 1}, {kind}: {figures}", flush=True)
    if found:
        print_table(found)
    if options.windows:
        # In a cluster of its own, because a dry run waits for plans in flight of a leader before it.
        with cluster(options) as (controllers, fleet):
            for what, delays in to_plan(controllers, fleet, options.windows).items():
                median, longest = statistics.median(delays), max(delays)
                print(f"window end to {what}: median {median:.1f} s, longest {longest:.1f} s of {len(delays)}")
    print(f"load average {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
