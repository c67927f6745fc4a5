"""Metrics of the controller process."""

import pytest

from tests.controller.loop.inbox_records import TOPICS
from trimtab_controller.kafka.connection import Connection
from trimtab_controller.leadership.driver import Candidacy
from trimtab_controller.leadership.machine import ENDED, TAKEN, CandidateRole
from trimtab_controller.leadership.metrics import ProcessMetrics
from trimtab_controller.loop.metrics import ControllerMetrics
from trimtab_protocol.settings.kafka import KafkaSettings


def test_a_standby_shows_its_role_and_no_figures_of_a_term_that_has_ended() -> None:
    process, term = ProcessMetrics(), ControllerMetrics()
    term.generation.set(7)
    process.see(CandidateRole.LEADING)
    process.show(term.registry)
    assert process.registry.get_sample_value("trimtab_controller_epoch_generation") == 7
    process.see(CandidateRole.WAITING)
    process.show(None)
    assert process.registry.get_sample_value("trimtab_controller_epoch_generation") is None
    roles = {
        each: process.registry.get_sample_value("trimtab_controller_role", {"role": each}) for each in CandidateRole
    }
    assert [each for each, value in roles.items() if value] == [CandidateRole.WAITING]
    process.show(ControllerMetrics().registry)  # the next term counts from zero
    assert process.registry.get_sample_value("trimtab_controller_epoch_generation") == 0


def test_a_term_that_its_operator_ends_is_not_counted_as_lost_to_another_controller() -> None:
    metrics = ProcessMetrics()
    connection = Connection(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    candidacy = Candidacy(
        connection, TOPICS, 6.0, new_term=lambda office: pytest.fail("a term"), metrics=metrics, stopping=lambda: False
    )
    counts = []
    for end in (ENDED, TAKEN):
        candidacy._perform((end,))
        counts.append(metrics.registry.get_sample_value("trimtab_controller_stood_down_total"))
    assert counts == [0, 1]
