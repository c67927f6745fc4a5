"""The names in a request."""

from collections.abc import Callable

import pytest

from trimtab_controller.intents.change import (
    ChangeRefused,
    RefusalKind,
    app_named,
    host_named,
    node_named,
    worker_named,
)

READERS = {
    "a worker's name": worker_named, "an app's id": app_named, "a host's name": host_named,
}  # fmt: skip


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 201])
@pytest.mark.parametrize(("expected", "read"), READERS.items())
def test_what_is_no_name_is_refused(expected: str, read: Callable[[str], str], name: str) -> None:
    with pytest.raises(ChangeRefused) as found:
        read(name)
    assert (found.value.fault, str(found.value)) == (RefusalKind.INVALID, f"found {name[:200]!r}, expected {expected}")
    assert read("orders-1") == "orders-1"


def test_a_zone_is_told_from_a_worker_and_a_host_by_what_stands_before_it() -> None:
    assert [node_named(text) for text in ("orders-1", "zone:rack-1")] == ["orders-1", "zone:rack-1"]
    for text, expected in (("a b", "a worker's name"), ("zone:", "the name of a zone"), ("zone:a:b", "the name of a")):
        with pytest.raises(ChangeRefused, match=f"expected {expected}"):
            node_named(text)
