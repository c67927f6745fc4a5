"""The least-privilege rules for each kind of client on a Kafka cluster.

An agent writes reports and acks, and reads commands.  A worker reads placements and hands over.  Only the controller
writes commands; an operator writes intents and nothing else.  `Read` and `Write` include `Describe`.  An idempotent
producer needs only `Write` on its topics (since Kafka 2.8); a consumer that joins no group needs only `Describe` on the
group that it names.
"""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from trimtab_protocol.messages.names import (
    AppId,
    Topics,
    controllers_group,
    keys_transactional_id,
    stream_transactional_id,
    topic_settings,
    transactional_id,
)

AGENT_GROUP = "trimtab-agent"
OTHER_GROUPS = "trimtab-"


class Role(StrEnum):
    """The kinds of clients that connect to Kafka."""

    AGENT = "agent"
    WORKER = "worker"
    CONTROLLER = "controller"
    READER = "reader"
    OPERATOR = "operator"


class Resource(StrEnum):
    """Kafka's resource types, as `kafka-acls` calls them."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    """Kafka's operations."""

    CREATE = "Create"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    READ = "Read"
    WRITE = "Write"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRule:
    """`role` may do `operation` on the resource `name`, or, if `prefixed`, on all whose names begin with it."""

    role: Role
    resource: Resource
    name: str
    operation: Operation
    prefixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AppTopics:
    """A steered Faust app: its id, and the topics it reads and writes besides its own (`<app>-...`)."""

    app: AppId
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All rules of one Trimtab cluster."""

    topics: Topics
    apps: tuple[AppTopics, ...] = field(default=())

    def of(self, role: Role) -> tuple[AclRule, ...]:
        """The rules of one role, without duplicates."""
        match role:
            case Role.AGENT:
                rules = self._agent()
            case Role.WORKER:
                rules = self._worker()
            case Role.CONTROLLER:
                rules = self._controller()
            case Role.READER:
                rules = self._reader(Role.READER)
            case Role.OPERATOR:
                rules = self._operator()
        return tuple(dict.fromkeys(rules))

    def _names(self) -> list[str]:
        return [settings.name for settings in topic_settings(self.topics)]

    def _agent(self) -> Iterator[AclRule]:
        topics = self.topics
        yield from _on_topics(Role.AGENT, Operation.WRITE, topics.reports, topics.acks)
        yield from _on_topics(Role.AGENT, Operation.READ, topics.commands)
        yield AclRule(role=Role.AGENT, resource=Resource.GROUP, name=AGENT_GROUP, operation=Operation.DESCRIBE)

    def _worker(self) -> Iterator[AclRule]:
        topics = self.topics
        yield from _on_topics(Role.WORKER, Operation.READ, topics.placement, topics.handover)
        yield from _on_topics(Role.WORKER, Operation.WRITE, topics.handover)
        for app in self.apps:
            yield AclRule(role=Role.WORKER, resource=Resource.GROUP, name=app.app, operation=Operation.READ)
            for operation in (Operation.CREATE, Operation.READ, Operation.WRITE):
                own = f"{app.app}-"
                yield AclRule(role=Role.WORKER, resource=Resource.TOPIC, name=own, operation=operation, prefixed=True)
            yield from _on_topics(Role.WORKER, Operation.READ, *app.reads)
            yield from _on_topics(Role.WORKER, Operation.WRITE, *app.writes)

    def _controller(self) -> Iterator[AclRule]:
        topics = self.topics
        yield from _on_topics(Role.CONTROLLER, Operation.CREATE, *self._names())
        # Hand-overs and events are not for the controller, but for `trimtab doctor`, `move`, `why` and others, which
        # people call with its configuration.
        yield from _on_topics(Role.CONTROLLER, Operation.READ, *self._names())
        yield from _on_topics(Role.CONTROLLER, Operation.DESCRIBE_CONFIGS, *self._names())  # only for `trimtab doctor`
        yield from _on_topics(
            Role.CONTROLLER, Operation.WRITE,
            topics.snapshots, topics.placement, topics.commands, topics.journal, topics.intents, topics.status,
            topics.events, topics.keys,
        )  # fmt: skip
        producers = [transactional_id(topics.cluster, acting=acting) for acting in (True, False)]
        for name in (*producers, stream_transactional_id(topics.cluster), keys_transactional_id(topics.cluster)):
            for operation in (Operation.DESCRIBE, Operation.WRITE):
                yield AclRule(role=Role.CONTROLLER, resource=Resource.TRANSACTIONAL_ID, name=name, operation=operation)
        group = controllers_group(topics.cluster)
        yield AclRule(role=Role.CONTROLLER, resource=Resource.GROUP, name=group, operation=Operation.READ)
        yield _on_groups(Role.CONTROLLER)

    def _reader(self, role: Role) -> Iterator[AclRule]:
        yield from _on_topics(role, Operation.READ, *self._names())
        group = controllers_group(self.topics.cluster)
        yield AclRule(role=role, resource=Resource.GROUP, name=group, operation=Operation.DESCRIBE)
        yield _on_groups(role)

    def _operator(self) -> Iterator[AclRule]:
        yield from self._reader(Role.OPERATOR)
        yield from _on_topics(Role.OPERATOR, Operation.WRITE, self.topics.intents)


def commands(rules: Iterable[AclRule], *, principal: str, bootstrap_servers: str) -> Iterator[str]:
    """The rules as command lines of Kafka's `kafka-acls`; `admin.properties` holds the admin's login."""
    for rule in rules:
        words = ["kafka-acls", "--bootstrap-server", bootstrap_servers, "--command-config", "admin.properties", "--add"]
        words += ["--allow-principal", principal, "--operation", rule.operation, f"--{rule.resource}", rule.name]
        words += ["--resource-pattern-type", "prefixed"] if rule.prefixed else []
        yield shlex.join(words)


def _on_topics(role: Role, operation: Operation, *names: str) -> Iterator[AclRule]:
    for name in names:
        yield AclRule(role=role, resource=Resource.TOPIC, name=name, operation=operation)


def _on_groups(role: Role) -> AclRule:
    return AclRule(role=role, resource=Resource.GROUP, name=OTHER_GROUPS, operation=Operation.DESCRIBE, prefixed=True)
