"""The share of an app's sends that skips the broker."""

from trimtab_controller.decider.window.collocation import local_sends
from trimtab_protocol.messages.names import AppId, KeyGroup, OperatorId
from trimtab_protocol.messages.snapshot import PairWindow, Snapshot


def pair(app: str, tuples_s: float, direct_s: float | None) -> PairWindow:
    source, target = (KeyGroup(AppId(app), OperatorId(name), 0) for name in ("in", "out"))
    return PairWindow(source=source, target=target, tuples_s=tuples_s, bytes_s=0.0, direct_s=direct_s)


def test_it_is_by_tuples_and_unknown_while_one_sender_does_not_tell() -> None:
    pairs = (
        pair("known", 30.0, 15.0),
        pair("known", 10.0, 10.0),
        pair("remote", 5.0, 0.0),
        pair("upgraded", 30.0, 15.0),
        pair("upgraded", 0.1, None),
        pair("silent", 0.0, 0.0),
    )
    snapshot = Snapshot(
        cluster="c", start_ms=0, end_ms=1, published_ms=2, hosts_seen=1, hosts_expected=1, watermark_ms=None,
        late_rows=0, pairs=pairs,
    )  # fmt: skip

    assert local_sends(snapshot) == {AppId("known"): 0.625, AppId("remote"): 0.0}
