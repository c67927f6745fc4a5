"""In whose name refused messages came: counted, and bounded whatever names a sender invents."""

from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.refused_hosts import (
    MAX_REFUSED_HOSTS,
    MAX_TALLIED,
    RefusedHost,
    RefusedHosts,
    RefusedTally,
)


def row(host: str, messages: int = 1, at: float = 1.0, fault: str = "unsigned") -> RefusedHost:
    return RefusedHost(topic="t", host=HostId(host), fault=fault, messages=messages, at=at)


def test_messages_of_one_host_and_fault_are_added_up() -> None:
    tally = RefusedTally()
    for each in (row("a", 2, 5.0), row("b", 4), row("a", 3, 4.0), row("a", 1, fault="malformed")):
        tally.add(each)

    assert tally.found == RefusedHosts(worst=(row("a", 5, 5.0), row("b", 4), row("a", 1, fault="malformed")))


def test_the_worst_are_told_and_the_others_counted() -> None:
    tally = RefusedTally()
    for number in range(MAX_REFUSED_HOSTS + 7):
        tally.add(row(f"h{number}", number + 1))

    assert [each.messages for each in tally.found.worst] == list(range(MAX_REFUSED_HOSTS + 7, 7, -1))
    assert tally.found.more == 7
    assert tally.found.joined(RefusedHosts(worst=(row("z", 10**6),), more=2)).more == 10


def test_invented_names_push_out_those_that_are_silent_longest() -> None:
    tally = RefusedTally()
    tally.add(row("real", 5))
    tally.add(row("silent", 5))
    for number in range(MAX_TALLIED):
        tally.add(row(f"x{number}"))
        tally.add(row("real"))

    assert tally.found.worst[0] == row("real", 5 + MAX_TALLIED)
    assert "silent" not in {each.host for each in tally.found.worst}
    assert len(tally.found.worst) + tally.found.more == MAX_TALLIED
