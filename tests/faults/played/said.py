"""What is said of a cell: by controller and stream (status, snapshots), in metrics, and in the processes' logs."""

import re
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException
from prometheus_client.parser import text_string_to_metric_families

from flights.readback import read_topic
from flights.watch import read_snapshots
from tests.faults.played.stage import UNSEEN, Stage, written_anew
from trimtab_sandbox.configuration import BROKER, host_name

COUNTED = ("bad_commands", "command_refusals", "worker_refused_records", "journal_faults")
"""Of the agents' metrics: what they, and their workers, refused."""


class Ear:
    """Listens from its making on for what has to be said: patterns, found anywhere in a line of a log, or at the
    beginning of anything else that is said.
    """

    def __init__(self, stage: Stage, wanted: Sequence[str]) -> None:
        self._stage = stage
        self._wanted = wanted
        self._since = time.time()
        self._counted = _counted(stage)
        self._sizes = {path: path.stat().st_size for path in _logs(stage)}

    def said(self) -> Counter[str]:
        """All so far; of the logs only what is wanted."""
        stage = self._stage
        said = Counter(stage.notes)
        said.update(_counted(stage) - self._counted)
        said.update(_written_anew(stage))
        if _lacks_hosts(stage, self._since):
            said[UNSEEN] = 1
        for path in _logs(stage):
            with path.open("rb") as log:
                log.seek(self._sizes.get(path, 0))
                text = log.read().decode(errors="replace")
            for pattern in self._wanted:
                said.update(match.group() for match in re.finditer(pattern, text))
        if (status := stage.run.watch.last) is None:
            return said
        said.update(f"{row.kind} {row.reason}" for row in status.decisions if row.at >= self._since)
        rounds = [row for row in stage.run.watch.rounds.values() if (row.ended_at or row.started_at) >= self._since]
        said.update("fallback" for row in rounds if row.fallback)
        said.update({"key groups not moved": sum(row.failed for row in rounds)})
        if status.hold is not None:
            said["hold"] += 1
        return +said


def unsaid(wanted: Sequence[str], said: Counter[str]) -> list[str]:
    """The patterns that nothing of what was said begins with."""
    return [pattern for pattern in wanted if not any(re.match(pattern, text) for text in said)]


def _written_anew(stage: Stage) -> Counter[str]:
    """How many records there are in topics that have been deleted."""
    found: Counter[str] = Counter()
    for part in stage.emptied:
        with suppress(KafkaException, TimeoutError, KeyError):  # nobody has made it again
            found[written_anew(part)] = sum(1 for _ in read_topic(stage.bootstrap, getattr(stage.cluster.topics, part)))
    return found


def _lacks_hosts(stage: Stage, since: float) -> bool:
    """Whether a window since then is without one of the hosts.  On a busy machine the status passes over windows."""
    try:
        windows = read_snapshots(stage.bootstrap, stage.cluster.topics)
    except (KafkaException, TimeoutError, KeyError):
        return False  # broker or topic are away just now
    return any(row.hosts_seen < row.hosts_expected for row in windows if row.end_ms / 1000 > since)


def _logs(stage: Stage) -> list[Path]:
    return [path for path in sorted(stage.cluster.logs.glob("*.log")) if not path.name.startswith(BROKER)]


def _counted(stage: Stage) -> Counter[str]:
    """What the controller, the stream, the agents and their workers count."""
    status = stage.run.watch.last
    own = f"trimtab.{stage.settings.cluster}."
    rejected = status.rejected if status else {}
    found = Counter({f"rejected {name.removeprefix(own)}": count for name, count in rejected.items()})
    try:
        for snapshot in read_snapshots(stage.bootstrap, stage.cluster.topics)[-1:]:
            found.update({f"rejected reports {fault}": count for fault, count in snapshot.rejected.items()})
            found["late reports"] = snapshot.late_rows
    except (KafkaException, TimeoutError, KeyError):
        pass  # broker or topic are away just now
    for index in range(stage.settings.workers):
        for family in text_string_to_metric_families(_metrics(stage.cluster.ports[host_name(index)][0])):
            metric = family.name.removeprefix("trimtab_agent_")
            if metric in COUNTED:
                rows = ((sample.labels.get("reason", ""), round(sample.value)) for sample in family.samples)
                found.update({f"{metric} {reason}": count for reason, count in rows})
    return found


def _metrics(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            return str(page.read().decode())
    except OSError:
        return ""  # it is away just now
