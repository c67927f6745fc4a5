"""Judges the changelogs of the apps: what a topic deletes, no worker that restores can bring back.  No I/O here.

Faust makes them with the right settings.  An administrator who creates topics first, or changes the retention of all
topics at once, takes state away without a word of anybody.
"""

from collections.abc import Iterable, Iterator, Sequence

from trimtab_controller.cli.doctor.cluster_checks import TopicSeen
from trimtab_controller.cli.doctor.findings import Check, Finding, fault, listed, not_checked, ok, warning

CHANGELOG = "-changelog"
"""How Faust ends the names of changelogs; they begin with the app's id."""
COPIES_COUNT_MS = 13 * 3_600_000
"""Workers go on with databases that were written in the last 12 h, so tombstones must be kept for longer."""


def judge_changelogs(apps: Iterable[str], found: Sequence[TopicSeen], *, brokers: int) -> Iterator[Finding]:
    """Whether the changelogs keep what workers restore from, also when one of several brokers is lost."""
    named = sorted(apps)
    if not found:
        text = f"no changelog is shown to this user (apps: {listed(named) or 'none reports'})"
        remedy = (
            "fine if no app has tables; otherwise compare `kafka-configs --describe` of the topics APP-TABLE-changelog"
        )
        yield not_checked(Check.CHANGELOGS, text, remedy) if named else ok(Check.CHANGELOGS, text)
        return
    faults = [finding for seen in found for finding in _judge(seen)]
    yield from faults
    if unshown := [seen.name for seen in found if seen.settings is None]:
        remedy = "give this user the right DescribeConfigs on them, or compare with `kafka-configs --describe`"
        yield not_checked(Check.CHANGELOGS, f"the settings are not shown: {listed(unshown)}", remedy)
    elif not faults:
        yield ok(Check.CHANGELOGS, f"all {len(found)} changelogs of {listed(named)} keep the newest value of each key")
    single = [seen.name for seen in found if seen.single]
    if brokers > 1 and single:
        text = (
            f"only one replica: {listed(single)}: while that broker is away the workers can write no state, and if its "
            "disk is lost, so is what workers restore from"
        )
        remedy = "add replicas (`kafka-reassign-partitions`), and set topic_replication_factor of the app (default: 1)"
        yield warning(Check.CHANGELOGS, text, remedy)


def _judge(seen: TopicSeen) -> Iterator[Finding]:
    settings = seen.settings or {}
    alter = f"kafka-configs --alter --entity-type topics --entity-name {seen.name} --add-config"
    policies = settings.get("cleanup.policy", "compact").split(",")
    if "compact" not in policies:
        text = (
            f"{seen.name}: cleanup.policy is {','.join(policies)}: values older than its retention are deleted, and a "
            "worker that restores the table lacks them without noticing"
        )
        yield fault(Check.CHANGELOGS, text, f"{alter} cleanup.policy=compact (of a windowed table: [compact,delete])")
    cut = sorted(partition for partition, start in seen.starts.items() if start > 0)
    if cut and policies == ["compact"]:
        text = (
            f"{seen.name}: records were deleted from partitions {listed(map(str, cut))}, though it is only compacted "
            "now: workers that have restored the table since lack values"
        )
        remedy = "if a worker's log says `state is lost`, begin again with new changelogs (docs/guides/upgrade.md)"
        yield warning(Check.CHANGELOGS, text, remedy)
    kept_ms = int(settings.get("delete.retention.ms", COPIES_COUNT_MS))
    if kept_ms < COPIES_COUNT_MS:
        text = (
            f"{seen.name}: delete.retention.ms is {kept_ms}: workers go on with databases written in the last 12 h, "
            "and in one that has missed a tombstone the deleted key is back"
        )
        yield warning(Check.CHANGELOGS, text, f"{alter} delete.retention.ms=86400000")
