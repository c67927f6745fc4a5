"""The row of a key group after its move: no loss should take all copies, and their number stays."""

import pytest

from trimtab_controller.rows import Site, Sites, row_after
from trimtab_protocol.messages.names import HostId, WorkerId
from trimtab_protocol.messages.owner_rows import Owners
from trimtab_protocol.messages.placement import MAX_STANDBYS

A, B, C, D = map(WorkerId, "abcd")


def sites(**hosts: str) -> Sites:
    """The host of each worker, or `zone/host`."""
    found = {WorkerId(name): text.rpartition("/") for name, text in hosts.items()}
    return {name: Site(host=HostId(host), zone=zone or None) for name, (zone, _, host) in found.items()}


@pytest.mark.parametrize(
    ("before", "known", "after"),
    [
        pytest.param((A,), sites(a="h1", b="h1"), (B, A), id="the only copy"),
        pytest.param((A, C), sites(a="h1", b="h1", c="h2"), (B, C), id="the standby is on another host"),
        pytest.param((A, C), sites(a="h1", b="h2", c="h3"), (B, A), id="so is the source, which lacks nothing"),
        pytest.param((A, C), sites(a="h1", b="h1", c="h1"), (B, A), id="there is one host"),
        pytest.param((A, B), sites(a="h1", b="h1"), (B, A), id="the target is the standby"),
        pytest.param((A, C), sites(a="h1", b="h1"), (B, A), id="nobody knows where the standby is"),
        pytest.param((A, C), {}, (B, A, C), id="nobody knows where anybody is"),
        pytest.param((A, C, B), sites(a="h1", c="h2"), (B, A, C), id="nobody knows where the target is"),
        pytest.param((A, B, C), sites(a="h1", b="h1", c="h2"), (B, C, A), id="there is room for the source behind it"),
        pytest.param((A, C, D), sites(a="h1", b="h1", c="h2", d="h3"), (B, C, D), id="both are on other hosts"),
        pytest.param((A, C, D), sites(a="h1", b="h2", c="h2", d="h3"), (B, A, D), id="one is near the target"),
        pytest.param((A, C), sites(a="x/h1", b="x/h2", c="y/h3"), (B, C), id="the standby is in another zone"),
        pytest.param((A, C), sites(a="x/h1", b="y/h2", c="z/h3"), (B, A), id="so is the source"),
        pytest.param((A, C), sites(a="x/h1", b="x/h1", c="x/h3"), (B, C), id="within a zone, hosts count"),
        pytest.param((A, C, D), sites(a="x/h1", b="x/h1", c="x/h3", d="y/h4"), (B, D, C), id="the farthest is first"),
    ],
)
def test_what_a_move_from_a_to_b_leaves(before: Owners, known: Sites, after: Owners) -> None:
    assert row_after(before, A, B, known) == after


def test_a_row_never_gets_longer_than_a_placement_takes() -> None:
    others = tuple(WorkerId(f"w{number}") for number in range(MAX_STANDBYS))
    assert row_after((A, *others), A, B, {}) == (B, A, *others[:-1])
