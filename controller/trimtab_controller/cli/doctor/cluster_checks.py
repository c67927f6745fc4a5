"""Judges what was found about Kafka.  No I/O here.

What a topic deletes, no worker that restores can bring back.  Faust makes the changelogs with the right settings.  An
administrator who creates topics first, or changes the retention of all topics at once, takes state away without a word
of anybody.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trimtab_controller.cli.doctor.findings import Check, Finding, fault, listed, not_checked, ok, warning
from trimtab_controller.security.acl import AclRule, Operation, Resource
from trimtab_protocol.messages.names import TopicSettings

AUTHENTICATION, TLS, RESOLVE = "authentication", "tls", "resolve"
"""Kinds of errors that the Kafka client distinguishes."""
NOT_NEEDED = "DELETE"
"""An operation that no rule of ours grants: a client that has it everywhere is not restricted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address `host:port`; `fault`: why no connection was possible."""

    name: str
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersSeen:
    """The brokers' addresses: `bootstrap` as configured, `advertised` as the cluster names them to clients.

    `answered`: the cluster returned its list of brokers.  `errors`: kind and text of the client's errors.
    """

    protocol: str
    bootstrap: tuple[Address, ...]
    answered: bool
    advertised: tuple[Address, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()


Rights = Mapping[tuple[Resource, str], frozenset[str]]
"""The allowed operations of this user, by (type, name) of the resource; a missing one is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSeen:
    """One partition: whether it has a leader, its replicas, and those that are in sync."""

    number: int
    leader: bool
    replicas: int
    in_sync: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    """A topic.  `settings` None: the brokers did not show them; `unreadable` says why.

    `starts` = where the log of each partition begins, as far as it was asked for and answered.
    """

    name: str
    partitions: tuple[PartitionSeen, ...]
    settings: Mapping[str, str] | None = None
    unreadable: str = ""
    starts: Mapping[int, int] = field(default_factory=dict)

    @property
    def single(self) -> bool:
        """Whether a partition has only one replica."""
        return any(each.replicas == 1 for each in self.partitions)


def judge_brokers(seen: BrokersSeen) -> Iterator[Finding]:
    """Whether the cluster answers and, if not, why."""
    away = [f"{each.name} ({each.fault})" for each in seen.bootstrap if each.fault is not None]
    if not seen.answered:
        yield fault(Check.BROKER, *_why_silent(seen, away))
        return
    names = listed(each.name for each in seen.advertised)
    yield ok(Check.BROKER, f"the cluster answers over {seen.protocol}; its brokers: {names}")
    if away:
        yield warning(Check.BROKER, f"not reached: {listed(away)}", "start them, or correct kafka.bootstrap_servers")
    unreached = [f"{each.name} ({each.fault})" for each in seen.advertised if each.fault is not None]
    if unreached:
        text = f"the cluster tells clients to connect to {listed(unreached)}, which does not work from here"
        yield fault(Check.BROKER, text, "correct the brokers' advertised.listeners, the name service or the firewall")


def _why_silent(seen: BrokersSeen, away: Sequence[str]) -> tuple[str, str]:
    """The problem and its remedy."""
    kinds = dict(reversed(seen.errors))
    if AUTHENTICATION in kinds:
        remedy = "correct kafka.sasl (mechanism, name, and the file with the secret), or add the user at the brokers"
        return f"the brokers refuse the login: {kinds[AUTHENTICATION]}", remedy
    if TLS in kinds:
        return f"no TLS with the brokers: {kinds[TLS]}", "correct kafka.tls (ca, certificate, key), or the port"
    if len(away) == len(seen.bootstrap):
        remedy = "start the brokers, or correct kafka.bootstrap_servers, the name service or the firewall"
        return f"no broker can be reached: {listed(away)}", remedy
    text = seen.errors[0][1] if seen.errors else "no answer in time"
    remedy = f"check that the listener speaks {seen.protocol}: [kafka] tls and sasl must be as the brokers have it"
    return f"a connection is accepted, but Kafka does not answer: {text}", remedy


def judge_rights(rights: Rights, rules: Sequence[AclRule]) -> Iterator[Finding]:
    """Whether the controller has the rights that it needs."""
    if rights and all(NOT_NEEDED in allowed for allowed in rights.values()):
        text = "this client may do everything: the brokers have no authorizer, or it is a super user"
        yield ok(Check.RIGHTS, text)
        return
    known, unknown, denied = 0, [], []
    for rule in rules:
        if rule.operation in (Operation.CREATE, Operation.DESCRIBE_CONFIGS):
            continue  # the first is only needed while a topic is missing; the check of the topics tells of the second
        allowed = rights.get((rule.resource, rule.name))
        what = f"{rule.operation} on {rule.resource} {rule.name}"
        if allowed is None:
            unknown.append(what)
        elif rule.operation.upper() in allowed:
            known += 1
        else:
            denied.append(what)
    if denied:
        yield fault(Check.RIGHTS, f"not allowed: {listed(denied)}", "`trimtab acl --role controller` prints the rules")
    elif known:
        yield ok(Check.RIGHTS, f"all {known} rights on topics and groups that can be asked for are granted")
    if unknown:
        text = f"the brokers do not show these rights: {listed(unknown)}"
        yield not_checked(Check.RIGHTS, text, "`trimtab acl --role controller` prints all rules: compare")


def judge_topics(found: Mapping[str, TopicSeen], wanted: Sequence[TopicSettings], *, brokers: int) -> Iterator[Finding]:
    """Whether the topics exist with the right settings."""
    missing = [each.name for each in wanted if each.name not in found]
    if len(missing) == len(wanted):
        text = "none of the cluster's topics exists"
        remedy = "fine before the first start: the controller creates them; otherwise correct controller.cluster"
        yield warning(Check.TOPICS, text, remedy)
        return
    if missing:
        text = f"missing: {listed(missing)}"
        remedy = "restart the controller, which creates them if it may; find out who deleted them"
        yield fault(Check.TOPICS, text, remedy)
    faults = [finding for each in wanted if each.name in found for finding in _judge_topic(found[each.name], each)]
    yield from faults
    unshown = {seen.unreadable: seen.name for seen in found.values() if seen.settings is None}
    if unshown:
        text = f"the settings of the topics are not shown: {listed(unshown)}"
        remedy = (
            "give this user the right DescribeConfigs on the topics (`trimtab acl --role controller` prints it), or "
            "compare `kafka-configs --describe` with docs/reference/topics.md"
        )
        yield not_checked(Check.TOPICS, text, remedy)
    if not faults and not missing and not unshown:
        yield ok(Check.TOPICS, f"all {len(wanted)} topics exist, with the right partitions and settings")
    single = [seen.name for seen in found.values() if seen.single]
    if brokers > 1 and single:
        text = f"only one replica: {listed(single)}"
        yield warning(Check.TOPICS, text, "add replicas: if the broker is lost, so is the only copy")


def _judge_topic(seen: TopicSeen, wanted: TopicSettings) -> Iterator[Finding]:
    count = len(seen.partitions)
    if wanted.partitions == 1 and count != 1:
        text = f"{seen.name}: found {count} partitions, expected 1; only the first is written to"
        yield warning(Check.TOPICS, text, "nothing: the others stay empty")
    leaderless = [str(part.number) for part in seen.partitions if not part.leader]
    if leaderless:
        text = f"{seen.name}: no leader for partition {listed(leaderless)}"
        yield fault(Check.TOPICS, text, "start the brokers that hold the partition")
    settings = seen.settings
    if settings is None:
        return
    needed = int(settings.get("min.insync.replicas", "1"))
    behind = [str(part.number) for part in seen.partitions if part.in_sync < needed]
    if behind and not leaderless:
        text = f"{seen.name}: min.insync.replicas is {needed}, and partition {listed(behind)} has fewer in sync"
        yield fault(Check.TOPICS, f"{text}: nothing can be written", "start the missing brokers, or lower it")
    for key, value in wanted.configuration.items():
        if not wanted.serves(key, settings.get(key)):
            text = f"{seen.name}: {key} is {settings.get(key, 'unknown')}, expected {value}"
            command = f"kafka-configs --alter --entity-type topics --entity-name {seen.name} --add-config {key}={value}"
            judge = warning if key in ("segment.bytes", "retention.ms", "retention.bytes") else fault
            yield judge(Check.TOPICS, text, command)


# --- the changelogs of the apps ---------------------------------------------------------------------------------------


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
