"""Recorded windows in, what a controller would have done out."""

from dataclasses import replace

import pytest

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.decider_situations import a_node as node
from tests.controller.decider.observed_snapshots import WHOLE, owned, snapshot
from trimtab_controller.configuration import Configuration
from trimtab_controller.loop.events.of_status import events_of_status
from trimtab_controller.replay.alternatives import alternatives
from trimtab_controller.replay.cluster import Pace
from trimtab_controller.replay.outcome import Outcome, Tally, count_events, measured_pauses
from trimtab_controller.replay.placed import evenness_of, placed, recorded_owners
from trimtab_controller.replay.replay import Replay
from trimtab_controller.replay.rules import RecordedRule, RecordedRules, recorded_rules
from trimtab_controller.solver.balance import answer
from trimtab_protocol.messages.codec import decoded
from trimtab_protocol.messages.events import Event, EventMove, encode_event, intent_event_id
from trimtab_protocol.messages.intents import AddRule, Drain
from trimtab_protocol.messages.names import Epoch, KeyGroup, WorkerId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.rules import Rule, RuleKind
from trimtab_protocol.messages.snapshot import PairWindow, Snapshot
from trimtab_protocol.messages.status import Status

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


def test_flux_is_replayed_on_the_same_windows_as_what_was_configured() -> None:
    """30, 24, 18 and 12 %: Flux moves the first and the third, which leaves 6 pp; the first and the last leave none."""
    cpu = dict(zip(OVERLOADED, (0.15, 0.12, 0.09, 0.06, 0.0, 0.0, 0.0, 0.0), strict=True))
    windows = [window(number, OVERLOADED) for number in range(20)]
    windows = [
        replace(each, key_groups=tuple(replace(row, cpu=cpu[row.key_group]) for row in each.key_groups))
        for each in windows
    ]
    even, by_flux = (replayed(configured(f"balance.method={method}"), windows) for method in ("milp", "flux"))
    assert (even.plans, even.moved, by_flux.plans, by_flux.moved) == (1, 2, 1, 2)
    assert by_flux.load_distance_mean - even.load_distance_mean == pytest.approx(0.9 * 6.0), (
        "in all but two windows of 20"
    )


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


# ---- A recorded window under another placement: what a key group brings to its worker, and how even that is


def cpu_of(window: Snapshot) -> dict[str, float]:
    return {row.worker: row.cpu for row in window.nodes if row.cpu is not None}


def test_a_key_group_brings_its_cpu_to_worker_and_host() -> None:
    found = placed(WHOLE, {kg(0): W1})
    assert recorded_owners(found) == {kg(0): W1, kg(1): W0, kg(2): W1}
    assert cpu_of(found) == {W0: pytest.approx(0.2), W1: pytest.approx(0.4)}
    assert [row.cpu for row in found.hosts] == [pytest.approx(1.9), pytest.approx(2.1)]
    assert [row.cpu for row in found.key_groups] == [0.1, 0.1, 0.1]


def test_a_host_twice_as_fast_needs_half_the_cpu() -> None:
    slow, fast = WHOLE.hosts
    window = replace(WHOLE, hosts=(replace(slow, speed=1.0), replace(fast, speed=2.0)))
    found = placed(window, {kg(0): W1})
    assert found.key_groups[0].cpu == pytest.approx(0.05)
    assert cpu_of(found) == {W0: pytest.approx(0.2), W1: pytest.approx(0.35)}


def test_whether_tuples_would_skip_the_broker_is_unknown_where_only_one_placement_has_it_so() -> None:
    def pair(source: int, target: int, direct_s: float) -> PairWindow:
        return PairWindow(source=kg(source), target=kg(target), tuples_s=5.0, bytes_s=50.0, direct_s=direct_s)

    window = replace(WHOLE, pairs=(pair(0, 1, 5.0), pair(0, 2, 0.0), pair(1, 2, 0.0)))
    found = placed(window, {kg(0): W1})
    assert [row.direct_s for row in found.pairs] == [0.0, None, 0.0]


def test_evenness_is_in_percent_of_each_worker_s_capacity() -> None:
    window = snapshot([node(W0, capacity=0.5), node(W1, capacity=1.0)], [owned(0, W0), owned(1, W0), owned(2, W1)])
    found = evenness_of(window)[APP]
    assert found.highest == pytest.approx(40.0)
    assert found.load_distance == pytest.approx(20.0), "40 % and 10 % around a mean of 20 %"


def test_a_worker_that_does_not_run_counts_for_nothing() -> None:
    window = snapshot([node(W0), node(W1, state=WorkerState.AWAY)], [owned(0, W0)])
    assert evenness_of(window)[APP].load_distance == 0.0
    assert evenness_of(snapshot([], [owned(0, W0)])) == {}


# ---- rules of operators over the recorded time: each is kept while it was wanted


RULE = Rule(name="stay", kind=RuleKind.PIN, reason="a test", key_groups=((0, 3),), workers=(W0,))
ADDED = AddRule(rule=RULE, by="ann", at=95.0, reason=RULE.reason)
DRAIN = Drain(worker=W1, by="bob", at=96.0, reason="new disk")


def status(at: float, *wanted: AddRule) -> Status:
    return Status(
        cluster="c", at=at, acting=True, epoch=Epoch(1, 1), paused=None, coverage=1.0, window_end=at,
        intents={each.key: each.at for each in wanted},
    )  # fmt: skip


def told(before: Status, after: Status, *heard: AddRule) -> list[Event]:
    """The events of a status, as they come from the wire."""
    return [decoded(encode_event(each), Event) for each in events_of_status(before, after, heard)]


def test_a_rule_is_wanted_from_its_event_to_that_of_its_end() -> None:
    events = told(status(90.0), status(100.0, ADDED), ADDED)
    ended = told(status(100.0, ADDED), status(200.0))
    found = recorded_rules([*events, *events, *ended], [DRAIN, None])
    kept = AddRule(rule=RULE, by="ann", at=100.0, reason="a test")
    assert found == RecordedRules(rules=(RecordedRule(added=kept, ended_at=200.0),))
    assert [found.at(at) for at in (99.0, 100.0, 199.0, 200.0)] == [(), (kept,), (kept,), ()]


def test_one_of_the_same_name_takes_the_place_of_another() -> None:
    other = replace(ADDED, rule=replace(RULE, workers=(W1,)), at=300.0)
    events = [*told(status(90.0), status(100.0, ADDED), ADDED), *told(status(200.0), status(310.0, other), other)]
    found = recorded_rules(events, [other])
    assert [each.rule.workers for each in found.at(305.0)] == [(W0,)]
    assert [each.rule.workers for each in found.at(311.0)] == [(W1,)]


def test_what_is_still_wanted_is_known_without_events() -> None:
    assert recorded_rules([], [ADDED]).at(95.0) == (ADDED,)


def test_a_rule_of_which_the_event_says_nothing_is_counted() -> None:
    [given] = told(status(90.0), status(100.0, ADDED), ADDED)
    silent = replace(given, rule=None)
    assert given.id == intent_event_id(ADDED.key, ADDED.at)
    assert recorded_rules([silent, silent], []) == RecordedRules(untold=1)
    assert recorded_rules([silent], [ADDED]) == RecordedRules(rules=(RecordedRule(added=ADDED),)), "it is still wanted"


def test_an_event_with_a_rule_of_a_later_version_is_read_without_it() -> None:
    [given] = told(status(90.0), status(100.0, ADDED), ADDED)
    later = encode_event(given).replace(b'"kind":"pin"', b'"kind":"tilt"')
    assert later != encode_event(given)
    assert decoded(later, Event) == replace(given, rule=None)


def test_a_replay_keeps_a_rule_while_it_was_wanted() -> None:
    """Four of the eight key groups of the overloaded worker are pinned: to it, then to the other one."""

    def owners_of_pinned(*rules: RecordedRule) -> set[str]:
        replay = Replay(configured(), answer, Pace(), RecordedRules(rules=rules))
        for number in range(24):
            replay.see(window(number, OVERLOADED))
        return {replay.owners[kg(partition)] for partition in range(4)}

    until = window(12, OVERLOADED).end_ms / 1000.0
    here = RecordedRule(added=replace(ADDED, at=0.0), ended_at=until)
    there = RecordedRule(added=replace(ADDED, at=until, rule=replace(RULE, workers=(W1,))))
    assert owners_of_pinned(here) == {W0}
    assert owners_of_pinned(here, there) == {W1}
