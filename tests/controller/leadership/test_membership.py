"""What the group refuses for good is said in words that name the setting; what passes is waited for."""

import json

import pytest
from confluent_kafka import KafkaError

from trimtab_controller.kafka.connection import Connection
from trimtab_controller.leadership.group import Membership, MembershipError, silence
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.settings.kafka import KafkaSettings

MEMBERSHIP = Membership(Connection(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1")), Topics("c"), 2.5)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (KafkaError.INVALID_SESSION_TIMEOUT, r"controller.lease_s: found 2.5, .*group.min.session.timeout.ms"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, r"the group trimtab.c.controllers: .*see `trimtab acl`"),
    ],
)
def test_what_will_not_pass_ends_the_candidacy(code: int, told: str) -> None:
    with pytest.raises(MembershipError, match=told):
        MEMBERSHIP._judge(KafkaError(code))


@pytest.mark.parametrize(
    "code", [KafkaError._TRANSPORT, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._MAX_POLL_EXCEEDED]
)
def test_weather_is_waited_for(code: int) -> None:
    MEMBERSHIP._judge(KafkaError(code))


def test_a_member_shows_several_times_per_lease_that_it_lives() -> None:
    assert MEMBERSHIP._settings["session.timeout.ms"] == 2500
    assert MEMBERSHIP._settings["heartbeat.interval.ms"] == 417


def test_a_member_that_has_not_joined_hears_nothing_and_leaves_in_peace() -> None:
    assert MEMBERSHIP.poll(0.0) == []
    MEMBERSHIP.leave()


def test_the_silence_of_kafka_is_that_of_the_broker_that_answered_last() -> None:
    brokers = {
        "a": {"state": "UP", "rxidle": 3_000_000},
        "GroupCoordinator": {"state": "UP", "rxidle": 500_000},
        "new": {"state": "UP", "rxidle": -1},
        "gone": {"state": "DOWN", "rxidle": 1},
    }
    assert silence(json.dumps({"brokers": brokers})) == 0.5
    assert silence(json.dumps({"brokers": {"gone": brokers["gone"], "new": brokers["new"]}})) is None
    assert silence("{}") is None
