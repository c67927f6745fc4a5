from faust.types import TP

from trimtab_agent.engines.faust.measure.rounds import GAP_NS, MAX_PARTITIONS, SHARED, Rounds

A, B = TP("t", 0), TP("t", 1)


class Clock:
    now = 10 * GAP_NS

    def __call__(self) -> int:
        return self.now


def count(*messages: tuple[int, TP]) -> dict[frozenset[TP], int]:
    """The rounds of messages that come after waits of so many nanoseconds."""
    clock = Clock()
    rounds = Rounds(clock)
    for wait_ns, partition in messages:
        clock.now += wait_ns
        rounds.message(partition)
    return dict(rounds.take())


def test_messages_close_to_each_other_are_one_round_however_long_it_gets():
    assert count(*[(GAP_NS, A)] * 100) == {frozenset({A}): 1}


def test_a_longer_wait_begins_another_round():
    assert count((0, A), (GAP_NS + 1, A), (GAP_NS + 1, B)) == {frozenset({A}): 2, frozenset({B}): 1}


def test_a_round_knows_whom_it_served():
    assert count((0, A), (5, B), (5, A)) == {frozenset({A, B}): 1}


def test_a_round_of_many_is_nobodys():
    assert count(*[(1, TP("t", number)) for number in range(MAX_PARTITIONS + 1)]) == {SHARED: 1}


def test_taking_ends_the_round_under_way_and_begins_anew():
    rounds = Rounds(Clock())
    rounds.message(A)

    assert rounds.take() == {frozenset({A}): 1}
    assert rounds.take() == {}
