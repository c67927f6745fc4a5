"""A repeated command is answered again, not carried out again."""

from trimtab_agent.engines.outcomes import MAX_REMEMBERED, Abandoned, Answers, Outcome, Prepared, Took
from trimtab_protocol.messages.names import CommandId

PREPARED = Prepared(generation=3, lag_records=0, state_bytes=None)
TOOK = Took(generation=3, pause_s=0.1)


def test_the_second_listener_hears_everything_and_the_first_no_more() -> None:
    first: list[Outcome] = []
    second: list[Outcome] = []
    answers = Answers()
    answer = answers.begin(CommandId("c"), first.append)
    answer.say(PREPARED)

    known = answers.known(CommandId("c"))
    assert known is answer
    known.repeat(second.append)
    answer.say(TOOK)

    assert (first, second) == ([PREPARED], [PREPARED, TOOK])


def test_what_is_remembered_is_bounded() -> None:
    answers = Answers()
    for number in range(MAX_REMEMBERED + 1):
        answers.begin(CommandId(str(number)), lambda _: None).say(Abandoned())

    assert answers.known(CommandId("0")) is None
    assert answers.known(CommandId("1")) is not None
