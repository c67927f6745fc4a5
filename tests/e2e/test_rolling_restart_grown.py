"""`trimtab rolling-restart` to a version with one more topic and table: it comes to its end by itself."""

import time
from pathlib import Path

import pytest

from tests.e2e.kept_run import exactly_counted, kept_run, started_by
from tests.e2e.paced_run import PARTITIONS, Jobs, Run, counted, longest_pause
from trimtab_protocol.messages.reason_text import WORKERS_DIFFER
from trimtab_protocol.messages.status import RestartStatus, Status
from trimtab_sandbox.broker import Topic

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(900)]

OPERATORS_DIFFER = "its workers declare different operators"


def restart_of(status: Status) -> RestartStatus | None:
    return next((row.restart for row in status.apps if row.restart is not None), None)


def differ_by(status: Status, done: int) -> bool:
    found = restart_of(status)
    return found is not None and found.done >= done and found.differ is not None


@pytest.mark.parametrize("version", ["within", "apart"])
def test_a_version_with_one_more_topic_and_table_is_on_all_hosts_and_nothing_is_lost_or_doubled(
    tmp_path: Path, version: str
) -> None:
    """`within`: in the same operator, so that its number of key groups stays; `apart`: in one of its own."""
    grown = tmp_path / "grown"
    with kept_run(tmp_path, "grown", GROWN=str(grown), STANDBYS="1") as run:
        run.cluster.broker.create_topics([Topic(name="refunds", partitions=PARTITIONS)])
        refunds = Jobs(run.cluster.broker.address, 2.0, topic="refunds")
        began = time.time()
        grown.write_text(version)
        said = run.trimtab("rolling-restart", "paced", "--reason", "refunds")
        assert "the hosts after the first are not drained" in said
        status = run.until(lambda status: differ_by(status, 1), "they differ after the first host", 180.0)
        found = restart_of(status)
        assert found is not None
        assert (found.differ or "").startswith((WORKERS_DIFFER, OPERATORS_DIFFER))
        first = time.time()
        shown = " ".join(run.trimtab("status").split())
        assert "without a drain, since nothing may move" in shown
        run.until(lambda status: any("restarted 3 of 3 workers" in row.text for row in status.decisions), "end", 300.0)
        ended = time.time()
        assert [started_by(run.cluster, f"h{index}") for index in range(3)] == [{"w0"}, {"w1"}, {"w2"}]
        after = run.until(
            lambda status: all(row.not_ready is None for row in status.apps), "it is steered again", 120.0
        )
        assert restart_of(after) is None
        assert not [row for row in after.decisions if "install one version" in row.text]
        stops = [line for line in run.trimtab("events", "--since", "1h").splitlines() if "without a drain" in line]
        assert len(stops) >= 2, stops
        refunds.close()
        exactly_counted(run)
        check_refunds(run, refunds)
        pause = longest_pause(run.cluster.broker.address, began, ended)
        print(
            f"{version}: first host after {first - began:.0f} s, all after {ended - began:.0f} s, pause {pause:.1f} s"
        )


def check_refunds(run: Run, refunds: Jobs) -> None:
    found = counted(run.cluster.broker.address, "paced-refunded-changelog")
    wrong = {key: (count, found.get(key)) for key, count in refunds.sent.items() if found.get(key) != count}
    print(f"{sum(refunds.sent.values())} refunds; key: (sent, counted) {wrong}")
    assert wrong == {}
    assert refunds.sent
