"""`trimtab doctor`: makes all checks in order, each with a time limit; skips those of brokers that are away."""

import argparse
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from confluent_kafka import KafkaException

from trimtab_controller.cli.doctor.agent_checks import (
    judge_agents,
    judge_clocks,
    judge_leader,
    judge_refusals,
    judge_signatures,
    judge_windows,
)
from trimtab_controller.cli.doctor.cluster import ClusterReader
from trimtab_controller.cli.doctor.cluster_checks import (
    BrokersSeen,
    judge_brokers,
    judge_changelogs,
    judge_rights,
    judge_topics,
)
from trimtab_controller.cli.doctor.findings import Check, Finding, Level, fault, not_checked, ok
from trimtab_controller.cli.doctor.host import see_checkpoint, see_jars, see_java, see_keys, see_port
from trimtab_controller.cli.doctor.host_checks import judge_checkpoint, judge_jars, judge_java, judge_keys, judge_port
from trimtab_controller.cli.parsers import config_of
from trimtab_controller.configuration import Configuration, load
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.kafka.reader import ReadError
from trimtab_controller.security.acl import Role, Rules
from trimtab_controller.security.keys import KeyFiles
from trimtab_process.credential_files import load_trust
from trimtab_process.exit_codes import DONE, FAILED
from trimtab_process.toml_files import BadConfiguration
from trimtab_protocol.messages.names import Topics, keys_transactional_id, topic_settings
from trimtab_protocol.signing.hosts import HostChecking
from trimtab_protocol.signing.keys import BadKey, TrustedKeys
from trimtab_protocol.wording import counted

T = TypeVar("T")

CHECK_LIMIT_S = 60.0
"""How long one check of `trimtab doctor` may take."""
INDENT = " " * 13


class CannotCheckError(Exception):
    """The check cannot be made; the message says why."""


def run(args: argparse.Namespace) -> int:
    """Print each finding as it comes; return the exit code."""
    findings = []
    for finding in examine(config_of(args)):
        findings.append(finding)
        if not args.json:
            print(_line(finding), flush=True)
    counts = Counter(finding.level for finding in findings)
    if args.json:
        rows = [asdict(finding) for finding in findings]
        print(json.dumps({"faults": counts[Level.FAULT], "warnings": counts[Level.WARNING], "findings": rows}))
    else:
        print(f"\n{_total(counts)}")
    return FAILED if counts[Level.FAULT] else DONE


def _line(finding: Finding) -> str:
    remedy = f"\n{INDENT}-> {finding.remedy}" if finding.remedy else ""
    return f"{finding.level:<11}  {finding.check}: {finding.text}{remedy}"


def _total(counts: Counter[Level]) -> str:
    named = ((Level.FAULT, "fault"), (Level.WARNING, "warning"))
    told = [counted(counts[level], word) for level, word in named]
    return ", ".join([*told, f"{counts[Level.NOT_CHECKED]} not checked"])


def examine(path: Path) -> Iterator[Finding]:
    """All findings, in the order of the checks."""
    configuration: Configuration | None = None
    try:
        configuration = load(path)
        yield ok(Check.CONFIGURATION, f"{path}, cluster {configuration.cluster}")
    except BadConfiguration as error:
        yield fault(Check.CONFIGURATION, str(error), "correct the file; docs/reference/configuration.md lists all keys")
    stream = configuration.stream if configuration else None
    spark = stream is None or stream.embedded
    own_jars = spark and (stream is None or not {"spark.jars", "spark.jars.packages"} & stream.spark.keys())
    yield from _bounded(Check.JAVA, lambda: [judge_java(see_java(), needed=spark)])
    yield from _bounded(Check.JARS, lambda: [judge_jars(see_jars(), needed=own_jars)])
    if configuration is None:
        for check in list(Check)[list(Check).index(Check.BROKER) :]:
            yield not_checked(check, "the configuration cannot be read")
        return
    yield from _examine_with(configuration)


def _examine_with(configuration: Configuration) -> Iterator[Finding]:
    """The checks that need a configuration; the leader is the last one."""
    topics = Topics(configuration.cluster)
    reader, brokers = None, None
    try:
        reader = ClusterReader(Connection(kafka=configuration.kafka), topics)
        brokers = _within_limit(reader.brokers)
        yield from judge_brokers(brokers)
    except KafkaException as error:
        yield fault(Check.BROKER, f"the Kafka client refuses the settings: {error.args[0].str()}", "correct [kafka]")
    except CannotCheckError as error:
        yield not_checked(Check.BROKER, str(error))
    answering = brokers is not None and brokers.answered
    cluster = reader if answering else None
    yield from _cluster_findings(cluster, brokers, configuration, topics)
    yield from _bounded(
        Check.CHECKPOINT, lambda: [judge_checkpoint(see_checkpoint(configuration.stream.checkpoint_dir))]
    )
    metrics = configuration.metrics
    yield from _bounded(Check.METRICS, lambda: [judge_port(None if metrics is None else see_port(metrics))])
    if cluster is None:
        yield not_checked(Check.LEADER, "the brokers do not answer")
    else:
        yield from _bounded(Check.LEADER, lambda: list(judge_leader(cluster.leader())))


def _cluster_findings(
    cluster: ClusterReader | None, brokers: BrokersSeen | None, configuration: Configuration, topics: Topics
) -> Iterator[Finding]:
    signing = configuration.signing
    keys: Callable[[], list[Finding]] = lambda: list(judge_keys(None if signing is None else see_keys(signing)))  # noqa: E731
    if cluster is None or brokers is None:
        for check in (Check.RIGHTS, Check.TOPICS, Check.CLOCKS, Check.AGENTS, Check.CHANGELOGS):
            yield not_checked(check, "the brokers do not answer")
        yield from _bounded(Check.SIGNING, keys)
        return
    off = configuration.host_signatures is HostChecking.OFF
    spared = {topics.keys, keys_transactional_id(topics.cluster)} if off else set()
    rules = tuple(rule for rule in Rules(topics=topics).of(Role.CONTROLLER) if rule.name not in spared)
    wanted = [settings for settings in topic_settings(topics) if settings.name not in spared]
    count = len(brokers.advertised)
    yield from _bounded(Check.RIGHTS, lambda: list(judge_rights(cluster.rights(rules), rules)))
    yield from _bounded(Check.TOPICS, lambda: list(judge_topics(cluster.topics(), wanted, brokers=count)))
    try:
        reports = _within_limit(lambda: cluster.reports(time.time(), None if off else _trusted(signing)))
    except CannotCheckError as error:
        yield not_checked(Check.CLOCKS, str(error))
        yield not_checked(Check.AGENTS, str(error))
        yield not_checked(Check.CHANGELOGS, str(error))
        yield from _bounded(Check.SIGNING, keys)
        return
    yield from judge_clocks(reports)
    yield from judge_agents(reports, configuration.stream.expected_hosts)
    yield from judge_windows(reports, configuration.stream.window_s)
    yield from _bounded(
        Check.CHANGELOGS,
        lambda: list(judge_changelogs(reports.apps, cluster.changelogs(reports.apps), brokers=count)),
    )
    yield from _bounded(Check.SIGNING, keys)
    yield from judge_signatures(reports, configuration.host_signatures)
    yield from judge_refusals(reports)


def _trusted(signing: KeyFiles | None) -> TrustedKeys | None:
    """The keys of the trust file; None if it cannot be used, which another check reports."""
    try:
        return None if signing is None else load_trust(signing.trust)
    except BadKey:
        return None


def _bounded(check: Check, look: Callable[[], Iterable[Finding]]) -> Iterable[Finding]:
    """The findings of a check; one NOT_CHECKED if it takes too long or the brokers do not answer."""
    try:
        return _within_limit(look)
    except CannotCheckError as error:
        return [not_checked(check, str(error))]


def _within_limit(look: Callable[[], T]) -> T:
    """Call `look` with a time limit.  Raises CannotCheckError; a call that hangs ends with the process."""
    results: list[T] = []
    faults: list[Exception] = []

    def work() -> None:
        try:
            results.append(look())
        except Exception as error:
            faults.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(CHECK_LIMIT_S)
    if results:
        return results[0]
    if not faults:
        raise CannotCheckError(f"it took longer than {CHECK_LIMIT_S:g} s")
    match faults[0]:
        case KafkaException() as error:
            raise CannotCheckError(f"Kafka: {error.args[0].str()}") from error
        case ReadError() | OSError() as error:
            raise CannotCheckError(str(error) or type(error).__name__) from error
        case error:
            raise error
