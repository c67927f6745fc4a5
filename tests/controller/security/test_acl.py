"""`trimtab acl`: the whole list of who may do what, and the command lines that say so to Kafka."""

import json
import shlex

import pytest

from trimtab_controller.cli import main
from trimtab_controller.security.acl import AclRule, AppTopics, Operation, Resource, Role, Rules, commands
from trimtab_protocol.messages.names import AppId, Topics

TOPICS = Topics("c")
RULES = Rules(topics=TOPICS, apps=(AppTopics(app=AppId("shop"), reads=("orders",), writes=("bills",)),))
CHANGING = {Operation.WRITE, Operation.CREATE}


def topics(role: Role, *operations: Operation) -> set[str]:
    """The topics on which a role may do one of these."""
    rows = (rule for rule in RULES.of(role) if rule.resource is Resource.TOPIC)
    return {rule.name + "*" * rule.prefixed for rule in rows if rule.operation in operations}


def test_only_the_controller_commands_and_places() -> None:
    for role in Role:
        commanding = {TOPICS.commands, TOPICS.placement, TOPICS.journal, TOPICS.status}
        assert (commanding <= topics(role, *CHANGING)) is (role is Role.CONTROLLER)
        assert commanding.isdisjoint(topics(role, *CHANGING)) is (role is not Role.CONTROLLER)


def test_an_operator_reads_everything_and_writes_intents() -> None:
    assert topics(Role.OPERATOR, Operation.READ) == topics(Role.READER, Operation.READ)
    assert topics(Role.OPERATOR, *CHANGING) == {TOPICS.intents}
    assert [role for role in Role if TOPICS.intents in topics(role, *CHANGING)] == [Role.CONTROLLER, Role.OPERATOR]


def test_who_has_the_controllers_password_may_call_each_command_with_it() -> None:
    """`trimtab doctor` looks at all topics, `trimtab move` and others at past events."""
    assert topics(Role.CONTROLLER, Operation.READ) == topics(Role.READER, Operation.READ)


def test_the_controllers_password_shows_the_settings_of_its_topics() -> None:
    """`trimtab doctor` compares them."""
    shown = {role: topics(role, Operation.DESCRIBE_CONFIGS) for role in Role}
    assert shown.pop(Role.CONTROLLER) == topics(Role.CONTROLLER, Operation.READ)
    assert set().union(*shown.values()) == set()


def test_an_agent_says_what_it_sees_and_hears_what_to_do() -> None:
    assert topics(Role.AGENT, *CHANGING) == {TOPICS.reports, TOPICS.acks}
    assert topics(Role.AGENT, Operation.READ) == {TOPICS.commands}


def test_a_worker_has_its_app_and_the_hand_overs() -> None:
    assert topics(Role.WORKER, *CHANGING) == {TOPICS.handover, "shop-*", "bills"}
    assert topics(Role.WORKER, Operation.READ) == {TOPICS.handover, TOPICS.placement, "shop-*", "orders"}
    groups = [rule for rule in RULES.of(Role.WORKER) if rule.resource is Resource.GROUP]
    assert groups == [AclRule(role=Role.WORKER, resource=Resource.GROUP, name="shop", operation=Operation.READ)]


def test_a_reader_changes_nothing() -> None:
    assert {rule.operation for rule in RULES.of(Role.READER)} == {Operation.READ, Operation.DESCRIBE}


def test_only_controllers_are_members_of_their_group_and_others_see_who_is() -> None:
    groups = {role: [rule for rule in RULES.of(role) if rule.name == "trimtab.c.controllers"] for role in Role}
    allowed = {role: [rule.operation for rule in rules] for role, rules in groups.items() if rules}
    seeing = [Operation.DESCRIBE]
    assert allowed == {Role.CONTROLLER: [Operation.READ], Role.READER: seeing, Role.OPERATOR: seeing}


@pytest.mark.parametrize("role", list(Role))
def test_no_role_reaches_into_another_cluster(role: Role) -> None:
    """Not even into one whose name begins like ours: c.d."""
    for rule in RULES.of(role):
        ours = not rule.name.startswith("trimtab.") or not rule.prefixed
        assert ours or rule.resource is Resource.GROUP


def test_each_rule_is_one_command_line_and_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "acl",
        "--cluster",
        "c",
        "--app",
        "shop",
        "--reads",
        "orders",
        "--worker",
        "User:CN=w 1",
        "--role",
        "worker",
    ]
    assert main(options) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert main([*options, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)

    assert (title, len(lines)) == ("# worker: User:CN=w 1", len(rows))
    assert {row["principal"] for row in rows} == {"User:CN=w 1"}
    assert shlex.split(lines[-1]) == [
        *("kafka-acls", "--bootstrap-server", "localhost:9092", "--command-config", "admin.properties", "--add"),
        *("--allow-principal", "User:CN=w 1", "--operation", "Read", "--topic", "orders"),
    ]
    prefixed = AclRule(
        role=Role.WORKER, resource=Resource.TOPIC, name="shop-", operation=Operation.WRITE, prefixed=True
    )
    [line] = commands([prefixed], principal="User:w", bootstrap_servers="b:1")
    assert line.endswith("--operation Write --topic shop- --resource-pattern-type prefixed")


@pytest.mark.parametrize(
    "wrong", [["--cluster", "a b"], ["--cluster", "c", "--app", "$x"], ["--cluster", "c", "--reads", "t"]]
)
def test_what_is_not_understood_is_said(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acl", *wrong]) == 2
    assert capsys.readouterr().err.startswith("trimtab acl: ")
