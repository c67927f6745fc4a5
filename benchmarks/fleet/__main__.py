"""Runs a fleet on this machine: a real broker, controller and Spark, with agents simulated in one process.

    python -m benchmarks.fleet [--hosts 10000] [--key-groups 100] [--window 60] [--minutes 15]

(or `make bench-fleet`).  The controller makes a dry run: it observes, evaluates, solves and logs what it would do.  The
results are printed and written to out/fleet/summary.json: sustained reports and samples per second, the age of
snapshots at their publication and at the controller's decision, the use of each process, the backlog of the stream at
the end (it reads once per window, so a backlog of up to one window is normal), and the load of the machine.  The ages
leave out the first window, which is incomplete.
"""

import argparse
import json
import math
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from benchmarks.fleet.agents import CLUSTER
from trimtab_protocol.messages.names import Topics, topic_settings
from trimtab_sandbox.broker import Broker, Topic, free_ports
from trimtab_sandbox.processes import Child, Processes

POLL_S = 0.2
SAMPLE_S = 5.0
WARM_UP_WINDOWS = 1
MEGABYTE = 1_000_000
RETENTION = {"retention.ms": "1200000", "segment.bytes": "134217728"}
CONFIGURATION = """
[controller]
cluster = "{cluster}"
[kafka]
bootstrap_servers = "{address}"
[stream]
window_s = {window_s}
watermark_s = {watermark_s}
checkpoint_dir = "{folder}/checkpoints"
spark = {{ "spark.master" = "local[2]", "spark.driver.memory" = "5g", \
"spark.driver.extraJavaOptions" = "-Xss16m -XX:+UseSerialGC" }}
[balance]
min_windows = 2
[metrics]
listen = "127.0.0.1:{port}"
"""
PUBLISHED = re.compile(
    r"published end_ms=(?P<end_ms>\d+) after_ms=(?P<after_ms>\d+) hosts=(?P<seen>\d+)/(?P<expected>\d+) "
    r"key_groups=(?P<key_groups>\d+) pairs=\d+ late_rows=(?P<late_rows>\d+) rejected=(?P<rejected>\d+) "
    r"bytes=(?P<bytes>\d+)"
)


@dataclass(slots=True)
class Use:
    """Use of a process: resident bytes at every sample, CPU seconds so far."""

    resident: list[int] = field(default_factory=list)
    cpu_s: float = 0.0
    began: float | None = None

    def see(self, process: psutil.Process) -> None:
        """One sample."""
        times = process.cpu_times()
        self.cpu_s = times.user + times.system
        self.began = self.cpu_s if self.began is None else self.began
        self.resident.append(process.memory_info().rss)

    def figures(self, seconds: float) -> dict[str, float]:
        """Megabytes after a third of the run, in the middle, at the end and at the peak; cores."""
        rows = self.resident
        places = {"third": len(rows) // 3, "middle": len(rows) // 2, "end": len(rows) - 1}
        found = {f"mb_{name}": round(rows[place] / MEGABYTE) for name, place in places.items()}
        return {
            **found,
            "mb_most": round(max(rows) / MEGABYTE),
            "cores": round((self.cpu_s - (self.began or 0.0)) / seconds, 3),
        }


class Watch:
    """Samples the processes and the controller's metrics while the fleet reports."""

    def __init__(self, port: int, children: dict[str, Child]) -> None:
        self._port = port
        self._children = children
        self.uses: dict[str, Use] = {}
        self.decided_after_s: list[float] = []
        self.metrics: dict[str, float] = {}
        self._age = float("inf")

    def run(self, seconds: float) -> None:
        """Sample for this time; raises SystemExit if a process ends."""
        end, sample_at = time.monotonic() + seconds, 0.0
        while time.monotonic() < end:
            for child in self._children.values():
                if not child.alive:
                    raise SystemExit(f"{child.name} has ended, see {child.log}")
            if time.monotonic() >= sample_at:
                sample_at = time.monotonic() + SAMPLE_S
                self._sample()
            self._read_metrics()
            time.sleep(POLL_S)

    def _sample(self) -> None:
        for name, child in self._children.items():
            process = psutil.Process(child.pid)
            self.uses.setdefault(name, Use()).see(process)
            if name == "controller":
                for below in process.children(recursive=True):
                    self._sample_below(below)

    def _sample_below(self, process: psutil.Process) -> None:
        try:
            command = " ".join(process.cmdline())
            kinds = {"java": "spark (JVM)", "trimtab_controller.stream": "stream (Python)", "spawn_main": "solver"}
            name = next((kind for word, kind in kinds.items() if word in command), None)
            if name is not None:
                self.uses.setdefault(name, Use()).see(process)
        except psutil.NoSuchProcess:
            pass

    def _read_metrics(self) -> None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=30) as page:
                text = page.read().decode()
        except OSError:
            return
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        self.metrics = {series_name(sample): sample.value for sample in samples}
        if math.isnan(self.metrics.get("coverage_ratio", math.nan)):
            return  # no window yet
        age = self.metrics["snapshot_age_seconds"]
        if 0 < age < self._age:  # a newer window than before has been decided on
            self.decided_after_s.append(age)
        self._age = age


def series_name(sample: Sample) -> str:
    """Name and labels of a series, as one word each; the cluster is always the same."""
    labels = (value for label, value in sample.labels.items() if label != "cluster")
    return " ".join((sample.name.removeprefix("trimtab_controller_"), *labels))


def spread(values: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return {"median": round(statistics.median(ordered), 2), "p99": round(high, 2), "longest": round(ordered[-1], 2)}


def backlog(broker: Broker, topics: Topics, checkpoints: Path) -> int:
    """Records on the topic that the stream has not started to read."""
    newest = max(checkpoints.glob("trimtab-stream-*/offsets/[0-9]*"), key=lambda path: int(path.name))
    begun = json.loads(newest.read_text(encoding="utf-8").splitlines()[-1])[topics.reports]
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "lag"})
    ends = {
        part: consumer.get_watermark_offsets(TopicPartition(topics.reports, int(part)), timeout=10)[1] for part in begun
    }
    consumer.close()
    return sum(ends[part] - offset for part, offset in begun.items())


def summary(options: argparse.Namespace, watch: Watch, logs: Path, behind: int, seconds: float) -> dict[str, Any]:
    """All figures."""
    sent = [json.loads(line) for line in (logs / "agents.log").read_text().splitlines() if line.startswith("{")]
    published = [match.groupdict() for match in PUBLISHED.finditer((logs / "controller.log").read_text())]
    rows = [{name: int(value) for name, value in row.items()} for row in published]
    steady = rows[WARM_UP_WINDOWS:]
    if not steady or not sent:
        raise SystemExit(f"too few windows, see {logs}")
    span_s = max(options.interval, sent[-1]["at"] - sent[0]["at"] + options.interval)
    reports_s = sum(row["reports"] for row in sent) / span_s
    solved = watch.metrics.get("solver_seconds_count", 0.0)
    return {
        "agents": "simulated, one process",
        "hosts": options.hosts,
        "key_groups": options.hosts * options.key_groups,
        "interval_s": options.interval,
        "window_s": options.window,
        "minutes": round(seconds / 60, 1),
        "reports_s": round(reports_s),
        "samples_s": round(reports_s * (options.key_groups + 2)),
        "intervals_missed": round(span_s / options.interval) - len(sent),
        "undelivered": sent[-1]["failed"],
        "windows": len(rows),
        "windows_complete": sum(row["seen"] == row["expected"] == options.hosts for row in steady),
        "windows_steady": len(steady),
        "key_groups_least": min(row["key_groups"] for row in steady),
        "snapshot_mb": round(steady[-1]["bytes"] / MEGABYTE, 1),
        "window_end_to_published_s": spread([row["after_ms"] / 1000 for row in steady]),
        "window_end_to_decided_s": spread(watch.decided_after_s[WARM_UP_WINDOWS:] or [float("nan")]),
        "solver_s": round(watch.metrics.get("solver_seconds_sum", 0.0) / solved, 2) if solved else None,
        "decisions": {
            name: count for name, count in watch.metrics.items() if name.startswith("decisions_total") and count
        },
        "late_rows": rows[-1]["late_rows"],
        "rejected": rows[-1]["rejected"],
        "behind_at_end": {"reports": behind, "seconds": round(behind / reports_s, 1)},
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "stream_restarts": watch.metrics.get("stream_restarts_total"),
        "processes": {name: use.figures(seconds) for name, use in watch.uses.items()},
    }


def main() -> None:
    """Run, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--key-groups", type=int, default=100, help="per host (100)")
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between reports of a host (10)")
    parser.add_argument("--window", type=float, default=60.0, help="seconds per window (60)")
    parser.add_argument("--minutes", type=float, default=15.0, help="how long the fleet reports (15)")
    parser.add_argument("--out", type=Path, default=Path("out/fleet"))
    options = parser.parse_args()
    topics = Topics(CLUSTER)
    options.out.mkdir(parents=True, exist_ok=True)
    logs = options.out / "logs"
    for old in logs.glob("*.log"):
        old.unlink()
    with tempfile.TemporaryDirectory() as name, Processes(logs) as processes:
        folder, [port] = Path(name), free_ports(1)
        with Broker(folder / "broker", processes, heap_mb=768) as broker:
            broker.create_topics(
                [
                    Topic(name=row.name, partitions=row.partitions, settings=row.configuration | RETENTION)
                    if row.retention_hours
                    else Topic(name=row.name, partitions=row.partitions, settings=row.configuration)
                    for row in topic_settings(topics)
                ]
            )
            config = folder / "controller.toml"
            config.write_text(
                CONFIGURATION.format(
                    cluster=CLUSTER,
                    address=broker.address,
                    window_s=options.window,
                    watermark_s=options.interval,
                    folder=folder,
                    port=port,
                ),
                encoding="utf-8",
            )
            program = "from trimtab_controller.cli import main; raise SystemExit(main())"
            controller = processes.start(
                "controller", [sys.executable, "-c", program, "controller", "run", "--config", str(config)]
            )
            sizes = [
                f"--{key}={value}" for key, value in (("hosts", options.hosts), ("key-groups", options.key_groups))
            ]
            command = [sys.executable, "-m", "benchmarks.fleet.agents", broker.address, *sizes]
            agents = processes.start("agents", [*command, f"--interval={options.interval}"])
            watch = Watch(port, {"broker": broker.process, "controller": controller, "agents (simulated)": agents})
            began = time.monotonic()
            watch.run(60 * options.minutes)
            behind = backlog(broker, topics, folder / "checkpoints")
            agents.stop()
            found = summary(options, watch, logs, behind, time.monotonic() - began)
    text = json.dumps(found, indent=2)
    (options.out / "summary.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
