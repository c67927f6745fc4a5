"""What the doctor says: each fault by itself, and nothing but `ok` where all is well."""

import argparse
import io
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.controller.decider.decider_situations import W0, W1
from tests.controller.decider.hosted_job import kg
from tests.controller.loop.test_why import BEGUN, ENDED, EVENTS, EXECUTION, MEASURED, known
from tests.narrow import not_none
from trimtab_controller.cli import main
from trimtab_controller.cli.doctor import command
from trimtab_controller.cli.doctor.agent_checks import (
    LeaderSeen,
    ReportSeen,
    ReportsSeen,
    judge_agents,
    judge_clocks,
    judge_leader,
    judge_refusals,
    judge_signatures,
    judge_windows,
)
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
from trimtab_controller.cli.doctor.findings import Check, Finding, Level
from trimtab_controller.cli.doctor.host import see_checkpoint
from trimtab_controller.cli.doctor.host_checks import (
    CheckpointSeen,
    JarsSeen,
    JavaSeen,
    KeysSeen,
    PortSeen,
    judge_checkpoint,
    judge_jars,
    judge_java,
    judge_keys,
    judge_port,
)
from trimtab_controller.cli.events import line_of
from trimtab_controller.cli.parsers import span
from trimtab_controller.cli.why import show, show_plan
from trimtab_controller.loop.events.explanation import explain_plan
from trimtab_controller.loop.why import why_here
from trimtab_controller.security.acl import Operation, Resource, Role, Rules
from trimtab_protocol.messages.events import EventMove
from trimtab_protocol.messages.names import AppId, HostId, Topics, TopicSettings, WorkerId, topic_settings
from trimtab_protocol.messages.report import Absence, Basis, HostSample, Report, WorkerSample, WorkerState
from trimtab_protocol.signing.hosts import HostChecking


def levels(findings: list[Finding]) -> list[Level]:
    assert all(finding.remedy for finding in findings if finding.level in (Level.WARNING, Level.FAULT))
    return [finding.level for finding in findings]


KEYS = KeysSeen(signs="k", trusted=("k",), trust_file=Path("t"), trust_mode=0o644)


@pytest.mark.parametrize(
    ("java", "level"),
    [
        (JavaSeen(command="java", version="17.0.9"), Level.OK),
        (JavaSeen(command="java", version="21"), Level.OK),
        (JavaSeen(command="java", version="1.8.0_402"), Level.FAULT),
        (JavaSeen(command="java", version="170.1"), Level.FAULT),
        (JavaSeen(command="java"), Level.FAULT),
        (JavaSeen(fault="no Java found"), Level.FAULT),
    ],
)
def test_java(java: JavaSeen, level: Level) -> None:
    assert levels([judge_java(java, needed=True)]) == [level]
    assert levels([judge_java(java, needed=False)]) == [Level.OK]


def test_jars() -> None:
    whole = JarsSeen(folder=Path("jars"), listed=4)
    assert levels([judge_jars(whole, needed=True)]) == [Level.OK]
    some = judge_jars(replace(whole, missing=("a.jar",)), needed=True)
    assert (some.level, some.text) == (Level.FAULT, "1 of 4 jars of Spark are not in jars")
    assert "trimtab jars" in some.remedy
    assert levels([judge_jars(replace(whole, fault="a.jar has SHA-256 0"), needed=True)]) == [Level.FAULT]


def test_signing_keys() -> None:
    assert levels(list(judge_keys(KEYS))) == [Level.OK]
    assert levels(list(judge_keys(None))) == [Level.WARNING]
    assert levels(list(judge_keys(replace(KEYS, fault="t: not a key")))) == [Level.FAULT]
    [rotating] = judge_keys(replace(KEYS, next_key=True, trusted=("k", "n")))
    assert (rotating.level, rotating.remedy[-6:]) == (Level.WARNING, "witch`")
    assert levels(list(judge_keys(replace(KEYS, trust_mode=0o666)))) == [Level.OK, Level.WARNING]


def test_a_checkpoint_folder_is_found_writable_before_it_is_made(tmp_path: Path) -> None:
    future = tmp_path / "a" / "b"
    found = see_checkpoint(str(future))
    assert (found.folder, found.is_folder, found.writable) == (tmp_path, True, True)
    assert not future.exists()
    (tmp_path / "file").touch()
    assert judge_checkpoint(see_checkpoint(str(tmp_path / "file"))).level is Level.FAULT
    assert judge_checkpoint(see_checkpoint(f"file://{tmp_path}")).level is not Level.NOT_CHECKED
    assert judge_checkpoint(see_checkpoint("s3a://bucket/checkpoints")).level is Level.NOT_CHECKED


def test_checkpoint_space_and_rights() -> None:
    good = CheckpointSeen(place="p", folder=Path("p"), writable=True, free_bytes=10 * 2**30)
    assert judge_checkpoint(good).level is Level.OK
    assert judge_checkpoint(replace(good, free_bytes=2**30)).level is Level.WARNING
    assert judge_checkpoint(replace(good, free_bytes=0)).level is Level.FAULT
    assert judge_checkpoint(replace(good, free_bytes=None)).level is Level.NOT_CHECKED
    assert judge_checkpoint(replace(good, writable=False)).level is Level.FAULT


def test_the_port_of_the_metrics() -> None:
    taken = PortSeen(address="127.0.0.1:9102", fault="Address already in use")
    assert judge_port(taken).level is Level.FAULT
    assert judge_port(replace(taken, ours=True)).level is Level.OK
    assert judge_port(replace(taken, fault=None)).level is Level.OK
    assert judge_port(None).level is Level.WARNING


# --- doctor cluster ---------------------------------------------------------------------------------------------------


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


# --- doctor agents ----------------------------------------------------------------------------------------------------


NOW = 1_000_000.0


def worker(name: str = "w0", **told: object) -> WorkerSample:
    whole = WorkerSample(
        worker=WorkerId(name),
        app=AppId("a"),
        state=WorkerState.RUNNING,
        capacity=1.0,
        cpu_s=0.1,
        steering=True,
        marks=(),
    )
    return replace(whole, **told)  # type: ignore[arg-type]


def seen(*workers: WorkerSample, at: float = NOW - 1, stamped_at: float | None = NOW - 1) -> ReportsSeen:
    report = Report(
        cluster="c",
        host=HostId("h0"),
        at_ms=round(at * 1000),
        interval_s=10.0,
        sequence=1,
        sample=HostSample(cpu_s=1.0, cores=4.0, basis=Basis.HOST),
        workers=workers or (worker(),),
        key_groups=(),
        pairs=(),
    )
    return ReportsSeen(
        now=NOW, looked_back_s=120, hosts={report.host: ReportSeen(report=report, stamped_at=stamped_at)}
    )


def test_signatures_of_hosts() -> None:
    signed = replace(seen(), unsigned={})
    without = replace(signed, unsigned={HostId("h0"): "unsigned"})

    assert levels(list(judge_signatures(signed, HostChecking.ENFORCE))) == [Level.OK]
    assert levels(list(judge_signatures(without, HostChecking.WARN))) == [Level.WARNING]
    assert levels(list(judge_signatures(without, HostChecking.ENFORCE))) == [Level.FAULT]
    assert list(judge_signatures(without, HostChecking.OFF)) == []
    assert list(judge_signatures(seen(), HostChecking.WARN)) == []


def test_clocks() -> None:
    assert levels(list(judge_clocks(seen()))) == [Level.OK]
    assert levels(list(judge_clocks(seen(at=NOW + 9, stamped_at=NOW + 9)))) == [Level.FAULT]
    assert levels(list(judge_clocks(seen(at=NOW - 60, stamped_at=NOW - 60)))) == [Level.WARNING]
    [skewed] = judge_clocks(seen(at=NOW + 4, stamped_at=NOW - 1))
    assert (skewed.level, "h0 (+5.0 s)" in skewed.text) == (Level.WARNING, True)
    assert levels(list(judge_clocks(seen(at=NOW - 31, stamped_at=NOW - 1)))) == [Level.WARNING]
    assert levels(list(judge_clocks(seen(stamped_at=None)))) == [Level.NOT_CHECKED]
    assert levels(list(judge_clocks(ReportsSeen(now=NOW, looked_back_s=120)))) == [Level.NOT_CHECKED]


def test_agents() -> None:
    hosts = frozenset({HostId("h0")})
    [good] = judge_agents(seen(), hosts)
    assert (good.level, "1 of 1 workers steered" in good.text) == (Level.OK, True)
    assert levels(list(judge_agents(seen(), None))) == [Level.OK]
    assert levels(list(judge_agents(ReportsSeen(now=NOW, looked_back_s=120), hosts))) == [Level.FAULT]
    missing = list(judge_agents(seen(), hosts | {HostId("h1")}))
    assert (levels(missing), missing[1].text) == ([Level.OK, Level.FAULT], "expected, but silent: h1")
    assert levels(list(judge_agents(seen(), frozenset({HostId("h1")})))) == [Level.OK, Level.FAULT, Level.WARNING]
    late = list(judge_agents(seen(stamped_at=NOW - 50), hosts))
    assert (levels(late), late[1].text) == ([Level.OK, Level.WARNING], "no report for a while: h0 (50 s)")
    partly = replace(seen(), complete=False)
    assert levels(list(judge_agents(partly, hosts | {HostId("h1")}))) == [Level.OK, Level.NOT_CHECKED]
    assert levels(list(judge_agents(replace(seen(), unreadable=("h2",)), hosts))) == [Level.OK, Level.FAULT]


@pytest.mark.parametrize(("number", "interval_s", "faults"), [(14, 10.0, 0), (24, 10.0, 1), (2, 100.0, 0)])
def test_two_agents_under_one_name_of_a_host_are_told(number: int, interval_s: float, faults: int) -> None:
    [host] = seen().hosts.values()
    many = replace(host, report=replace(host.report, interval_s=interval_s), number=number)
    told = list(judge_agents(replace(seen(), hosts={HostId("h0"): many}), None))

    assert [each.text for each in told if each.level is Level.FAULT] == [
        "more reports than one agent makes: h0"
    ] * faults


def test_windows_that_the_reports_do_not_fill() -> None:
    [host] = seen().hosts.values()
    ten = replace(seen(), hosts={HostId("h0"): replace(host, report=replace(host.report, interval_s=10.0))})

    assert [list(judge_windows(ten, window_s)) for window_s in (10.0, 60.0)] == [[], []]
    for window_s in (5.0, 15.0):
        [told] = judge_windows(ten, window_s)
        assert (told.level, "h0 (10 s)" in told.text) == (Level.WARNING, True)
    tenth = replace(seen(), hosts={HostId("h0"): replace(host, report=replace(host.report, interval_s=0.1))})
    assert list(judge_windows(tenth, 0.3)) == []


def test_workers_that_are_not_steered_say_why() -> None:
    told = list(judge_agents(seen(worker(steering=False, unknown="aiokafka 0.13"), worker("w1")), None))
    assert levels(told) == [Level.OK, Level.WARNING]
    assert told[1].text.endswith("w0 on h0: aiokafka 0.13")
    reset = list(judge_agents(seen(worker(reason="offsets were reset"), worker("w1")), None))
    assert levels(reset) == [Level.OK, Level.WARNING]
    assert reset[1].text == "these workers run, but: w0 on h0: offsets were reset"
    away = list(judge_agents(seen(worker(state=WorkerState.AWAY, steering=False)), None))
    assert (levels(away), away[1].text) == ([Level.OK, Level.WARNING], "not connected to their agents: w0 on h0")
    stopped = worker(state=WorkerState.AWAY, steering=False, absence=Absence.STOPPED, declared=AppId("shop"))
    assert levels(list(judge_agents(seen(stopped), None))) == [Level.OK], "it is in the pool"


def test_agents_that_refuse_signatures() -> None:
    assert list(judge_refusals(seen())) == []
    [finding] = judge_refusals(replace(seen(), refusing={HostId("h0"): "unknown_key"}))
    assert (finding.check, finding.level) == (Check.SIGNING, Level.WARNING)
    assert "h0 (unknown_key)" in finding.text


def test_the_leader() -> None:
    good = LeaderSeen(leader="c1:7", standbys=("c2:8",), heard_s=3.0)
    assert levels(list(judge_leader(good))) == [Level.OK]
    assert levels(list(judge_leader(replace(good, heard_s=60.0)))) == [Level.WARNING]
    assert levels(list(judge_leader(replace(good, heard_s=None)))) == [Level.WARNING]
    assert levels(list(judge_leader(replace(good, leader=None)))) == [Level.FAULT]
    assert levels(list(judge_leader(LeaderSeen(leader=None, dry_run_heard_s=2.0)))) == [Level.WARNING]
    assert levels(list(judge_leader(replace(good, hold="the journal is gone")))) == [Level.OK, Level.FAULT]
    assert levels(list(judge_leader(replace(good, paused="paused by ann")))) == [Level.OK, Level.WARNING]


# ---- `trimtab doctor` where there is no Kafka: what it prints, and that it ends in time


CHECKS = [str(check) for check in Check]


@pytest.fixture(autouse=True)
def bare_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("TRIMTAB_JARS", str(tmp_path))


def test_without_a_configuration_only_the_host_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "controller.toml"
    assert main(["doctor", "--config", str(path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    levels = {row["check"]: row["level"] for row in document["findings"]}
    assert list(levels) == CHECKS
    assert [check for check, level in levels.items() if level == Level.FAULT] == ["configuration", "java", "jars"]
    assert {level for check, level in levels.items() if check not in ("configuration", "java", "jars")} == {
        Level.NOT_CHECKED
    }
    assert (document["faults"], document["warnings"]) == (3, 0)


def test_a_fault_stands_in_one_line_and_its_remedy_in_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "controller.toml"
    path.write_text('[controller]\ncluster = "c"\n')
    assert main(["doctor", "--config", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"fault        configuration: {path}: kafka: missing, expected an object"
    assert lines[1].startswith("             -> ")
    assert lines[-1] == "3 faults, 0 warnings, 10 not checked"


def test_a_check_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "CHECK_LIMIT_S", 0.1)
    [finding] = command._bounded(Check.JAVA, lambda: time.sleep(30) or [])  # type: ignore[func-returns-value]
    assert (finding.level, finding.text) == (Level.NOT_CHECKED, "it took longer than 0.1 s")


@pytest.mark.parametrize("command", ["doctor", "health"])
def test_the_environment_names_the_configuration_where_no_option_does(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = tmp_path / "controller.toml", tmp_path / "other.toml"
    for path in (file, other):
        path.write_text('[controller]\ncluster = "c"\n', encoding="utf-8")
    monkeypatch.setenv("TRIMTAB_CONFIG", str(file))
    assert main([command]) > 0
    assert str(file) in "".join(capsys.readouterr())
    assert main([command, "--config", str(other)]) > 0
    assert str(file) not in "".join(capsys.readouterr())

    monkeypatch.delenv("TRIMTAB_CONFIG")
    with pytest.raises(SystemExit) as ended:
        main([command])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "trimtab: name the configuration: --config FILE, or TRIMTAB_CONFIG\n"


# ---- `trimtab events` and `trimtab why` as text, and what `--since` accepts


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("15m", 900.0), ("6h", 21_600.0), ("7d", 604_800.0)])
def test_how_far_back(text: str, seconds: float) -> None:
    assert span(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "0h", "1w", "1d ", "٣d"])
def test_another_span_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number with s, m, h or d"):
        span(text)


def test_an_event_is_one_line_that_names_its_plan() -> None:
    line = line_of(BEGUN).plain
    assert line.endswith("  plan begun        plan 1.2: app: 2 moves [load_distance]")
    assert "\n" not in line


def test_a_key_group_as_text() -> None:
    out = io.StringIO()
    show(why_here(kg(1), known(), EXECUTION, EVENTS), Console(file=out, width=140, highlight=False, markup=False))
    text = out.getvalue()
    assert "app/sums/1 is on w0 since " in text
    assert "plan 1.2 moved it here from w1: w1 had 45.5 %, above the mean of 30.0 %" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "if it were on load distance (now 20.00 pp) its load" in rows
    assert "w0 on h-w0 20.00 50.0 % it is here" in rows
    assert "w2 on h-w2 5.00 (-15.00) 35.0 % standby" in rows


def test_a_plan_as_text() -> None:
    judged = replace(MEASURED, moves=(EventMove(key_group=kg(1), source=W1, target=W0, measured_pct=21.0, paid=False),))
    found = not_none(explain_plan("1.2", (BEGUN, ENDED, judged)))
    out = io.StringIO()
    show_plan(found, Console(file=out, width=160, highlight=False, markup=False))
    rows = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert rows[:2] == [
        "plan 1.2: app: 2 moves",
        "load distance 5.00 pp predicted, 5.50 pp measured, mean load 30.0 %",
    ]
    told = "done; paused 0.25 s; 21.00 % measured; it did not pay"
    why = "w1 had 45.5 %, above the mean of 30.0 %; w0 was a standby of it"
    assert f"app/sums/1 w1 w0 20.00 % {told} {why}" in rows
    assert "app/sums/2 w0 w1 25.00 % failed it made room for another key group" in rows
    assert "w0 45.0 % 50.0 % 49.0 %" in rows
    assert "w2 - - 1.0 %" in rows, "what is not known is no zero"


def test_of_many_moves_the_first_are_shown() -> None:
    moves = tuple(EventMove(key_group=kg(number), source=W1, target=W0) for number in range(50))
    found = not_none(explain_plan("1.2", (replace(BEGUN, moves=moves, moves_total=1_500),)))
    out = io.StringIO()
    show_plan(found, Console(file=out, width=160, highlight=False, markup=False))
    assert "and 1480 more (--json has 50)" in out.getvalue()
