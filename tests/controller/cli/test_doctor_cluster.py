"""What the doctor says of brokers, rights and topics: each fault by itself, and nothing but `ok` where all is well."""

from dataclasses import replace

import pytest

from tests.controller.cli.findings import levels
from trimtab_controller.cli.doctor.cluster_checks import (
    AUTHENTICATION,
    TLS,
    Address,
    BrokersSeen,
    PartitionSeen,
    TopicSeen,
    judge_brokers,
    judge_changelogs,
    judge_rights,
    judge_topics,
)
from trimtab_controller.cli.doctor.findings import Finding, Level
from trimtab_controller.security.acl import Operation, Resource, Role, Rules
from trimtab_protocol.messages.names import Topics, TopicSettings, topic_settings

TOPICS = Topics("c")
WANTED = topic_settings(TOPICS)
RULES = Rules(topics=TOPICS).of(Role.CONTROLLER)
FOUND = {
    each.name: TopicSeen(
        name=each.name,
        partitions=tuple(PartitionSeen(number=n, leader=True, replicas=3, in_sync=3) for n in range(each.partitions)),
        settings={**each.configuration, "min.insync.replicas": "2"},
    )
    for each in WANTED
}
HERE = Address(name="k1:9092")
AWAY = Address(name="k2:9092", fault="Connection refused")
ANSWERING = BrokersSeen(protocol="PLAINTEXT", bootstrap=(HERE,), answered=True, advertised=(HERE,))
SILENT = replace(ANSWERING, answered=False, advertised=())


def test_brokers_that_answer() -> None:
    assert levels(list(judge_brokers(ANSWERING))) == [Level.OK]
    assert levels(list(judge_brokers(replace(ANSWERING, bootstrap=(HERE, AWAY))))) == [Level.OK, Level.WARNING]
    assert levels(list(judge_brokers(replace(ANSWERING, advertised=(HERE, AWAY))))) == [Level.OK, Level.FAULT]


@pytest.mark.parametrize(
    ("brokers", "text"),
    [
        (replace(SILENT, bootstrap=(AWAY,)), "no broker can be reached: k2:9092 (Connection refused)"),
        (
            replace(SILENT, errors=(("", "down"), (AUTHENTICATION, "bad login"))),
            "the brokers refuse the login: bad login",
        ),
        (replace(SILENT, errors=((TLS, "unknown CA"), ("", "down"))), "no TLS with the brokers: unknown CA"),
        (replace(SILENT, errors=(("", "down"),)), "a connection is accepted, but Kafka does not answer: down"),
        (SILENT, "a connection is accepted, but Kafka does not answer: no answer in time"),
    ],
)
def test_brokers_that_do_not_answer(brokers: BrokersSeen, text: str) -> None:
    [finding] = judge_brokers(brokers)
    assert (finding.level, finding.text) == (Level.FAULT, text)
    assert finding.remedy


def test_rights_are_those_that_the_acls_grant() -> None:
    granted: dict[tuple[Resource, str], set[str]] = {}
    for rule in RULES:
        granted.setdefault((rule.resource, rule.name), set()).add(rule.operation.upper())
    allowed = {what: frozenset(operations) for what, operations in granted.items()}
    assert levels(list(judge_rights(allowed, RULES))) == [Level.OK]
    older = {what: each - {"DESCRIBECONFIGS"} for what, each in allowed.items()}
    assert levels(list(judge_rights(older, RULES))) == [Level.OK], "the check of the topics says what it cannot see"
    less = {what: each for what, each in allowed.items() if what[0] is not Resource.TRANSACTIONAL_ID}
    told = list(judge_rights(less, RULES))
    assert levels(told) == [Level.OK, Level.NOT_CHECKED]
    assert "Write on transactional-id trimtab.c.controller" in told[1].text
    less[Resource.TOPIC, TOPICS.journal] = frozenset({"READ"})
    denied = next(iter(judge_rights(less, RULES)))
    text = f"not allowed: {Operation.WRITE} on topic {TOPICS.journal}"
    assert (denied.level, denied.text) == (Level.FAULT, text)
    assert levels(list(judge_rights({}, RULES))) == [Level.NOT_CHECKED]


def test_a_client_that_may_delete_all_it_sees_is_not_restricted() -> None:
    everything = frozenset({"READ", "WRITE", "DESCRIBE", "DELETE"})
    rights = {(Resource.TOPIC, TOPICS.journal): everything, (Resource.GROUP, "g"): everything}
    assert levels(list(judge_rights(rights, RULES))) == [Level.OK]
    restricted = {**rights, (Resource.GROUP, "g"): frozenset[str]()}
    assert levels(list(judge_rights(restricted, RULES))) == [Level.OK, Level.NOT_CHECKED]


def changed(name: str, **settings: str) -> dict[str, TopicSeen]:
    before = FOUND[name]
    return {**FOUND, name: replace(before, settings={**(before.settings or {}), **settings})}


def test_topics_as_they_should_be() -> None:
    assert levels(list(judge_topics(FOUND, WANTED, brokers=3))) == [Level.OK]
    longer = changed(TOPICS.reports, **{"retention.ms": "-1", "max.message.bytes": "99999999"})
    assert levels(list(judge_topics(longer, WANTED, brokers=3))) == [Level.OK]


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_what_a_provider_forces_on_us_is_no_fault_while_all_works(wanted: TopicSettings) -> None:
    managed = changed(wanted.name, **wanted.otherwise)
    assert wanted.otherwise
    assert levels(list(judge_topics(managed, WANTED, brokers=3))) == [Level.OK]


def test_topics_that_are_missing() -> None:
    less = {name: each for name, each in FOUND.items() if name != TOPICS.journal}
    [finding] = judge_topics(less, WANTED, brokers=3)
    assert (finding.level, finding.text) == (Level.FAULT, f"missing: {TOPICS.journal}")
    assert levels(list(judge_topics({}, WANTED, brokers=3))) == [Level.WARNING]


@pytest.mark.parametrize(
    ("topic", "key", "value", "level"),
    [
        (TOPICS.journal, "cleanup.policy", "delete", Level.FAULT),
        (TOPICS.reports, "message.timestamp.type", "CreateTime", Level.FAULT),
        (TOPICS.snapshots, "max.message.bytes", "1048588", Level.FAULT),
        (TOPICS.status, "segment.bytes", "1073741824", Level.WARNING),
        (TOPICS.acks, "retention.ms", "60000", Level.WARNING),
        (TOPICS.journal, "min.insync.replicas", "4", Level.FAULT),
    ],
)
def test_a_topic_with_a_wrong_setting(topic: str, key: str, value: str, level: Level) -> None:
    [finding] = judge_topics(changed(topic, **{key: value}), WANTED, brokers=3)
    assert finding.level is level
    assert finding.text.startswith(f"{topic}: {key} is {value}")
    assert finding.remedy


def test_partitions_of_topics() -> None:
    one = PartitionSeen(number=0, leader=True, replicas=1, in_sync=1)

    def told(topic: str, *partitions: PartitionSeen, settings: dict[str, str] | None = None) -> list[Finding]:
        seen = replace(FOUND[topic], partitions=partitions)
        return list(
            judge_topics({**FOUND, topic: replace(seen, settings=settings or seen.settings)}, WANTED, brokers=3)
        )

    whole = replace(one, replicas=3, in_sync=3)
    assert levels(told(TOPICS.journal, whole, replace(whole, number=1))) == [Level.WARNING]
    assert levels(told(TOPICS.reports, *(replace(whole, number=n) for n in range(12)))) == [Level.OK]
    assert levels(told(TOPICS.journal, replace(whole, leader=False, in_sync=0))) == [Level.FAULT]
    single = told(TOPICS.status, one, settings={**(FOUND[TOPICS.status].settings or {}), "min.insync.replicas": "1"})
    assert levels(single) == [Level.OK, Level.WARNING]


def test_settings_that_are_not_shown_are_not_taken_for_good() -> None:
    hidden = {name: replace(each, settings=None, unreadable="denied") for name, each in FOUND.items()}
    [finding] = judge_topics(hidden, WANTED, brokers=3)
    assert finding.level is Level.NOT_CHECKED
    assert "`trimtab acl --role controller` prints it" in finding.remedy


def changelog(name: str, **settings: str) -> TopicSeen:
    kept = {"cleanup.policy": "compact", "delete.retention.ms": "86400000"}
    return TopicSeen(name=name, partitions=(), settings=kept | {k.replace("_", "."): v for k, v in settings.items()})


def test_changelogs_that_keep_all_state_are_all_right() -> None:
    windowed = changelog("shop-windowed-changelog", cleanup_policy="compact,delete", retention_ms="60000")
    [finding] = judge_changelogs({"shop"}, [changelog("shop-sums-changelog"), windowed], brokers=3)
    assert (finding.level, finding.text) == (
        Level.OK,
        "all 2 changelogs of shop keep the newest value of each key",
    )
    assert levels(list(judge_changelogs(set(), [], brokers=3))) == [Level.OK]


@pytest.mark.parametrize(
    ("settings", "level", "told"),
    [
        ({"cleanup_policy": "delete"}, Level.FAULT, "cleanup.policy is delete"),
        ({"delete_retention_ms": "3600000"}, Level.WARNING, "delete.retention.ms is 3600000"),
    ],
)
def test_a_changelog_that_loses_state_is_told(settings: dict[str, str], level: Level, told: str) -> None:
    findings = list(
        judge_changelogs({"shop"}, [changelog("shop-sums-changelog", **settings), changelog("shop-x")], brokers=3)
    )
    assert levels(findings) == [level]
    assert findings[0].text.startswith(f"shop-sums-changelog: {told}")


@pytest.mark.parametrize(("policy", "found"), [("compact", [Level.WARNING]), ("compact,delete", [Level.OK])])
def test_records_that_a_compacted_changelog_has_lost_are_told(policy: str, found: list[Level]) -> None:
    cut = replace(changelog("shop-sums-changelog", cleanup_policy=policy), starts={0: 0, 1: 7, 2: 9})

    findings = list(judge_changelogs({"shop"}, [cut], brokers=3))

    assert levels(findings) == found
    assert ("partitions 1, 2" in findings[0].text) == (policy == "compact")


def test_a_changelog_with_one_replica_is_told_where_there_are_more_brokers() -> None:
    only = PartitionSeen(number=0, leader=True, replicas=1, in_sync=1)
    single = replace(changelog("shop-sums-changelog"), partitions=(only,))
    copied = replace(changelog("shop-x-changelog"), partitions=(replace(only, replicas=3, in_sync=3),))

    whole, told = judge_changelogs({"shop"}, [single, copied], brokers=3)
    assert (whole.level, told.level) == (Level.OK, Level.WARNING)
    assert told.text.startswith("only one replica: shop-sums-changelog: while that broker is away")
    assert "topic_replication_factor" in told.remedy
    assert levels(list(judge_changelogs({"shop"}, [single, copied], brokers=1))) == [Level.OK]


def test_changelogs_that_this_user_may_not_see_are_not_checked() -> None:
    hidden = TopicSeen(name="shop-sums-changelog", partitions=(), unreadable="Topic authorization failed.")
    assert levels(list(judge_changelogs({"shop"}, [], brokers=3))) == [Level.NOT_CHECKED]
    assert levels(list(judge_changelogs({"shop"}, [hidden], brokers=3))) == [Level.NOT_CHECKED]
