"""`trimtab doctor` against SASL_SSL and ACLs: what a login may do, what it may not, and one that is refused.

The console tells a lack of rights, too.
"""

import json
import subprocess

from confluent_kafka.admin import AdminClient

from tests.e2e.played_cluster import PROGRAM
from tests.e2e.security.console_rights import check_console
from tests.e2e.security.secured_broker import LIMIT_S, Secured
from trimtab_controller.kafka.connection import events_obstacle
from trimtab_protocol.messages.names import topic_settings
from trimtab_protocol.settings.kafka import for_librdkafka
from trimtab_sandbox.broker import Topic


def doctor(secured: Secured, user: str, password: str | None = None) -> dict[str, list[tuple[str, str]]]:
    """Check -> (level, text) of what it finds with the password of a user, or with another one."""
    path = secured.folder / "controller.toml"
    path.write_text(
        f'[controller]\ncluster = "{secured.cluster}"\n{secured.section(user)}'
        f'[stream]\ncheckpoint_dir = "{secured.folder / "checkpoints"}"\n'
    )
    if password is not None:
        (secured.folder / f"{user}.password").write_text(password)
    command = [*PROGRAM, "doctor", "--json", "--config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    found: dict[str, list[tuple[str, str]]] = {}
    for row in json.loads(done.stdout)["findings"]:
        found.setdefault(row["check"], []).append((row["level"], row["text"]))
    return found


def test_the_doctor_tells_logins_and_rights_apart(secured: Secured) -> None:
    secured.broker.create_topics([Topic(name=each.name, partitions=1) for each in topic_settings(secured.topics)])

    controller = doctor(secured, "controller")
    assert [level for level, _ in controller["broker"]] == ["ok"], controller
    assert "fault" not in [level for level, _ in controller["rights"]], controller
    assert any(level == "ok" for level, _ in controller["rights"]), controller
    assert not [text for _, text in controller["topics"] if text.startswith("missing")], controller
    assert "not checked" not in [level for level, _ in controller["topics"]], "its login sees the topics' settings"
    told = [*PROGRAM, "events", "--since", "1h", "--config", str(secured.folder / "controller.toml")]
    assert subprocess.run(told, capture_output=True, timeout=LIMIT_S).returncode == 0, "its login reads past events too"

    reader = doctor(secured, "reader")
    [denied] = [text for level, text in reader["rights"] if level == "fault"]
    assert denied.startswith("not allowed: "), reader
    assert f"Write on topic {secured.topics.commands}" in denied

    stranger = doctor(secured, "controller", password="guess")
    [(level, text)] = stranger["broker"]
    assert (level, text.split(":")[0]) == ("fault", "the brokers refuse the login"), stranger
    assert {level for level, _ in stranger["rights"]} == {"not checked"}, stranger

    admins = {user: AdminClient(for_librdkafka(secured.kafka(user))) for user in ("controller", "reader", "agent")}
    allowed = {user: events_obstacle(admin, secured.topics) is None for user, admin in admins.items()}
    assert allowed == {"controller": True, "reader": False, "agent": False}, "by the brokers' own word"

    check_console(secured)
