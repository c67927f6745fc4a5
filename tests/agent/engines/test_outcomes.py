"""A repeated command is answered again, not carried out again."""

from dataclasses import replace

from tests.fuzz.fuzzed.samples import PREPARE
from trimtab_agent.engines.outcomes import MAX_REMEMBERED, Answers
from trimtab_protocol.messages.commands import Ack, Phase, Refusal
from trimtab_protocol.messages.names import Epoch


def test_the_second_listener_hears_everything_and_the_first_no_more() -> None:
    first: list[Ack] = []
    second: list[Ack] = []
    answers = Answers()
    answer = answers.begin(PREPARE, first.append, lambda: 3.0)
    answer.say(Phase.PREPARED, generation=3, lag_records=0)

    known = answers.known(PREPARE.id)
    assert known is answer
    known.repeat(second.append)
    answer.say(Phase.TOOK, generation=3, pause_s=0.1)

    prepared = Ack.to(PREPARE, Phase.PREPARED, at=3.0, generation=3, lag_records=0)
    assert (first, second) == ([prepared], [prepared, Ack.to(PREPARE, Phase.TOOK, at=3.0, generation=3, pause_s=0.1)])


def test_a_refusal_has_a_detail_that_fits_into_an_ack() -> None:
    said: list[Ack] = []
    for detail in ("", "x" * 5000):
        Answers().begin(PREPARE, said.append).refuse(Refusal.FAILED, detail)
    assert [(ack.phase, ack.detail) for ack in said] == [(Phase.REFUSED, None), (Phase.REFUSED, "x" * 4000)]


def test_what_is_remembered_is_bounded() -> None:
    answers, commands = Answers(), [replace(PREPARE, epoch=Epoch(1, number)) for number in range(MAX_REMEMBERED + 1)]
    for command in commands:
        answers.begin(command, lambda _: None).say(Phase.ABANDONED)

    assert answers.known(commands[0].id) is None
    assert answers.known(commands[1].id) is not None
