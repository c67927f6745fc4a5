"""Recorded windows in, what a controller would have done out."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import owned, snapshot
from trimtab_controller.configuration import Configuration
from trimtab_controller.replay.alternatives import alternatives
from trimtab_controller.replay.cluster import Pace
from trimtab_controller.replay.outcome import Outcome, Tally, count_events, measured_pauses
from trimtab_controller.replay.placed import recorded_owners
from trimtab_controller.replay.replay import Replay
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.events import Event, EventMove
from trimtab_protocol.messages.names import KeyGroup, WorkerId
from trimtab_protocol.messages.snapshot import Snapshot

KEY_GROUPS = 8
OVERLOADED = {kg(partition): W0 for partition in range(KEY_GROUPS)}
SIZE = 5_000_000


def configured(*settings: str) -> Configuration:
    document = {
        "controller": {"cluster": "c"},
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "stream": {"checkpoint_dir": "none", "window_s": 10.0},
        "balance": {"min_windows": 1, "solver_time_limit_s": 0.1},
    }
    return alternatives(document, [*settings])[-1].configuration


def window(number: int, owners: dict[KeyGroup, WorkerId], workers: tuple[WorkerId, ...] = (W0, W1)) -> Snapshot:
    rows = [owned(each.partition, worker, cpu=0.02, state_bytes=SIZE) for each, worker in sorted(owners.items())]
    seen = snapshot([node(worker, operators={"sums": KEY_GROUPS}) for worker in workers], rows)
    shift_ms = number * 10_000
    return replace(
        seen,
        hosts_seen=2,
        hosts_expected=2,
        **{name: getattr(seen, name) + shift_ms for name in ("start_ms", "end_ms", "published_ms")},
    )


def replayed(configuration: Configuration, windows: list[Snapshot], pace: Pace = Pace()) -> Outcome:  # noqa: B008
    replay = Replay(configuration, answer, pace)
    for each in windows:
        replay.see(each)
    return replay.outcomes()[APP]


def test_a_controller_balances_what_nobody_balanced() -> None:
    found = replayed(configured(), [window(number, OVERLOADED) for number in range(20)], Pace(pause_s={APP: 0.5}))
    assert (found.windows, found.plans, found.moved) == (20, 1, 4)
    assert found.paused_s == pytest.approx(4 * 0.5)
    assert found.restored_bytes == 4 * SIZE
    assert found.load_distance_mean < 16.0 / 4, "16 pp in the first windows, none after the plan"
    assert found.reasons["inside_band"] > 10


def test_within_a_wider_band_it_leaves_it_as_it_was() -> None:
    found = replayed(configured("balance.load_distance=20"), [window(number, OVERLOADED) for number in range(10)])
    assert (found.plans, found.moved, found.paused_s, found.restored_bytes) == (0, 0, 0.0, 0)
    assert found.load_distance_mean == pytest.approx(16.0)


def test_what_the_recorded_controller_moved_later_does_not_matter() -> None:
    even = {each: (W0, W1)[each.partition % 2] for each in OVERLOADED}
    same = replayed(configured(), [window(number, OVERLOADED) for number in range(20)])
    moved = replayed(configured(), [window(number, OVERLOADED if number < 10 else even) for number in range(20)])
    assert moved == same


def test_the_restore_of_a_large_state_takes_its_time() -> None:
    def distance(bytes_s: float) -> float:
        windows = [window(number, OVERLOADED) for number in range(20)]
        return replayed(
            configured("execution.prepare_timeout_s=600"), windows, Pace(bytes_s=bytes_s)
        ).load_distance_mean

    assert distance(SIZE / 30.0) > distance(SIZE / 1.0)


def test_key_groups_of_a_worker_that_is_gone_go_where_they_were_recorded() -> None:
    elsewhere = dict.fromkeys(OVERLOADED, W0)
    windows = [window(number, OVERLOADED) for number in range(10)]
    windows += [window(number, elsewhere, (W0,)) for number in range(10, 20)]
    replay = Replay(configured(), answer, Pace())
    for each in windows[:10]:
        replay.see(each)
    assert replay.outcomes()[APP].moved == 4
    for each in windows[10:]:
        replay.see(each)
    assert set(replay.owners.values()) == {W0}
    assert replay.owners == recorded_owners(windows[-1])


def test_what_was_done_is_counted_from_the_events() -> None:
    def ended(*pauses: float | None, app: str = APP) -> Event:
        moves = tuple(
            EventMove(key_group=kg(place), source=W0, target=W1, outcome="done", pause_s=pause)
            for place, pause in enumerate(pauses)
        )
        failed = EventMove(key_group=kg(9), source=W0, target=W1, outcome="failed")
        return Event(id="1", cluster="c", at=1.0, kind="plan", phase="ended", text="", app=app, moves=(*moves, failed))

    events = [ended(0.2, 0.4), ended(0.6, None), ended(9.0, app="other")]
    tally = Tally()
    count_events(tally, APP, events)
    assert (tally.plans, tally.moved, tally.paused_s) == (2, 4, pytest.approx(1.2))
    assert measured_pauses(events) == {APP: pytest.approx(0.4), "other": pytest.approx(9.0)}
    assert tally.outcome() is None, "no window was seen"
