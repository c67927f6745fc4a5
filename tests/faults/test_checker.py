"""The checker of the fault matrix: silent about a clean run of a real cluster, loud about every planted violation."""

import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.recorded.check import check
from tests.faults.recorded.counting import copies, deaths_of, repeats
from tests.faults.recorded.facts import TOTALS, read_facts
from tests.faults.recorded.groups import Generation
from tests.faults.recorded.history import PLANTED, History, Strike, read_history, write_files, write_rows, write_strikes
from tests.faults.recorded.ownership import Span, excused_s, gaps
from tests.faults.recorded.planted import PLANTS, Plant, added, body, edited, own, such, with_rows, without
from tests.faults.recorded.planted_commands import (  # enters its plants too
    a_generation_does_not_follow_the_placement,
    unheard_of,
)
from tests.faults.recorded.verdict import Bounds, Broken, Verdict
from tests.paths import ROOT

HERE = Path(__file__).parent
RUN = HERE / "clean_run.zip"
"""One key group of a recorded run with a worker and the controller killed; made by `recorded/trim.py`."""
BOUNDS = Bounds(commit_s=1.0, session_s=10.0)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = tmp_path_factory.mktemp("clean")
    with zipfile.ZipFile(RUN) as archive:
        archive.extractall(folder)
    return read_history("faults", folder)


@pytest.fixture(scope="module")
def verdict(clean: History) -> Verdict:
    return check(clean, BOUNDS)


def test_a_clean_run_is_clean_and_everything_was_looked_at(verdict: Verdict) -> None:
    assert verdict.violations == ()
    assert verdict.unseen(rounds=True) == []


def test_a_death_may_repeat_what_was_not_committed_and_each_fault_has_its_cost(
    clean: History, verdict: Verdict
) -> None:
    assert [cost.strike for cost in verdict.costs] == list(clean.strikes)
    for cost in verdict.costs:
        assert cost.lost == 0
        assert cost.repeated <= cost.allowed
        assert bool(cost.allowed) == bool(cost.unowned_s > BOUNDS.handover_s) == bool(cost.strike.dead)


@pytest.mark.parametrize(("plant", "broken"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
def test_what_is_planted_is_found_and_nothing_else(clean: History, plant: Plant, broken: frozenset[Broken]) -> None:
    verdict = check(plant(clean), BOUNDS)

    assert {violation.broken for violation in verdict.violations} == broken


def test_each_kind_of_violation_is_planted() -> None:
    assert frozenset.union(*(broken for _, broken in PLANTS)) == set(Broken)


def test_what_the_matrix_itself_wrote_is_not_held_against_the_controller(clean: History) -> None:
    commands = own(clean, "commands")
    doubled = added(clean, commands, 0, headers={PLANTED: b"1"})
    torn = added(doubled, commands, 0, value=b"{", headers={PLANTED: b"1"})

    assert check(torn, BOUNDS).violations == ()


def test_a_repeat_without_a_death_is_a_violation(clean: History, verdict: Verdict) -> None:
    alive = replace(clean, strikes=tuple(replace(strike, dead=()) for strike in clean.strikes))
    repeated = sum(cost.repeated for cost in verdict.costs)

    found = [row for row in check(alive, BOUNDS).violations if row.broken is Broken.REPEATED]

    assert len(found) == repeated > 0


def test_a_history_is_read_as_it_was_written(clean: History, tmp_path: Path) -> None:
    for topic, rows in clean.rows.items():
        write_rows(tmp_path, topic, rows)
    write_strikes(tmp_path, clean.strikes)
    write_files(tmp_path, clean.trusted, clean.journals)

    assert read_history("faults", tmp_path) == clean
    assert read_history("faults", tmp_path, tmp_path) == clean


def test_of_a_topic_made_anew_both_lives_are_read(clean: History, tmp_path: Path) -> None:
    topic = own(clean, "acks")
    first, second = clean.of(topic)[:2]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write_rows(tmp_path / "a", topic, [first])
    write_rows(tmp_path / "b", topic, [second._replace(offset=0)])

    history = read_history("faults", tmp_path / "a", tmp_path / "b")

    assert [body(row) for row in history.of(topic)] == [body(first), body(second)]


def test_nobody_answers_commands_whose_topic_is_taken_away(clean: History) -> None:
    topic = own(clean, "commands")
    first, *rows = clean.of(topic)
    silent = unheard_of(clean, body(first)["id"])
    anew = with_rows(silent, topic, [first, *(row._replace(offset=number) for number, row in enumerate(rows))])

    assert {violation.broken for violation in check(silent, BOUNDS).violations} == {Broken.UNANSWERED}
    assert check(anew, BOUNDS).violations == ()


def test_a_word_that_is_lost_with_the_broker_is_no_second_owner(clean: History) -> None:
    first, second = clean.strikes
    lost = replace(clean, strikes=(first, replace(second, spares_job=False)))
    topic = own(clean, "handover")
    took = next(
        number
        for number in such(clean, topic, kind="took")
        if "flights/sums/2" in body(clean.of(topic)[number])["key_groups"]
    )

    assert {violation.broken for violation in check(without(lost, topic, took), BOUNDS).violations} == {Broken.UNOWNED}


def test_what_was_taken_is_commanded_again_when_a_generation_came_between(clean: History) -> None:
    topic, commands = own(clean, "handover"), own(clean, "commands")
    handover = body(clean.of(topic)[such(clean, topic, kind="took")[0]])["handover"]
    release = such(clean, commands, kind="release", handover=handover)[0]

    assert check(edited(clean, commands, release, at=clean.of(topic)[-1].at), BOUNDS).violations == ()


def test_a_placement_that_nobody_could_hear_of_need_not_be_followed(clean: History) -> None:
    unheard = a_generation_does_not_follow_the_placement(clean)
    last = max(row.at for row in clean.own("placement"))
    away = replace(clean.strikes[0], at=0.0, over_at=last + 100.0, steered_at=last + 200.0)

    kinds = {violation.broken for violation in check(replace(unheard, strikes=(away,)), BOUNDS).violations}

    assert Broken.ASTRAY not in kinds
    assert Broken.UNSIGNED in kinds


def test_a_key_group_may_write_to_several_partitions_of_the_totals(clean: History) -> None:
    rows = clean.of(TOTALS)
    halves = [[row for number, row in enumerate(rows) if number % 2 == half] for half in range(2)]
    spread = [
        row._replace(partition=half, offset=offset) for half in range(2) for offset, row in enumerate(halves[half])
    ]

    assert check(with_rows(clean, TOTALS, spread), BOUNDS).violations == ()


def test_a_strike_that_spares_the_job_has_no_dead() -> None:
    with pytest.raises(ValueError, match="is not spared"):
        Strike(case="x", at=1.0, over_at=2.0, steered_at=3.0, dead=("w0",), spares_job=True)


def test_the_bounds_are_those_that_the_documentation_states() -> None:
    text = (ROOT / "docs" / "failure-model.md").read_text(encoding="utf-8")

    for row in (
        f"| no owner, planned move | {BOUNDS.handover_s:g} s |",
        f"| no owner, its worker killed, stopped or cut off | session + {BOUNDS.rejoin_s:g} s |",
        f"whatever happens to agents, controllers, Spark or solver | {BOUNDS.goes_on_s:g} s |",
        f"| no owner, or no input done, the broker away | + its absence + session + {BOUNDS.rejoin_s:g} s |",
        f"begins nothing after {BOUNDS.holds_s:g} s at most",
        f"another worker does not reach a broker and the group rebalances | + {BOUNDS.leaves_s:g} s |",
        f"and in the {BOUNDS.commit_takes_s:g} s that the commit\ntakes",
        f"half of `broker_rebalance_timeout` ({BOUNDS.in_work_s:g} s) at most. Then the event is done again",
    ):
        assert row in text


def test_nothing_of_the_product_judges_the_product() -> None:
    code = "import sys, tests.faults.recorded.check; print(sorted(sys.modules))"
    names = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "tests.faults.recorded.check" in names
    assert not any(part in names for part in ("trimtab", "flights.", "'flights'", "faust", "aiokafka"))


def test_whom_nobody_can_replace_may_be_missed_for_as_long_as_the_fault_lasts() -> None:
    strike = Strike(case="x", at=100.0, over_at=160.0, steered_at=200.0, dead=("w0", "w1"))
    usual = BOUNDS.session_s + BOUNDS.rejoin_s

    assert excused_s([strike], 100.0, 170.0, BOUNDS) == usual
    assert excused_s([replace(strike, none_left=True)], 100.0, 170.0, BOUNDS) == 60.0 + usual


def test_only_who_lacks_a_broker_may_stand_still_and_only_meanwhile() -> None:
    strike = Strike(case="x", at=100.0, over_at=140.0, steered_at=150.0, lacking=("w0",))

    def owned(worker: str, start: float) -> Span:
        return Span(worker=worker, opened=start, start=start)

    assert excused_s([strike], 100.0, 141.0, BOUNDS, [owned("w0", 0.0)]) == 40.0
    assert excused_s([strike], 100.0, 141.0, BOUNDS, [owned("w1", 0.0)]) == 0.0
    assert excused_s([strike], 100.0, 141.0, BOUNDS, [owned("w1", 0.0), owned("w1", 120.0)]) == BOUNDS.leaves_s
    assert excused_s([strike], 100.0, 141.0, BOUNDS) == 0.0


def test_a_rebalance_may_wait_for_who_lacks_a_broker_and_a_hand_over_may_not() -> None:
    strike = Strike(case="x", at=100.0, over_at=140.0, steered_at=150.0, lacking=("w0",))
    released = Span(worker="w1", opened=0.0, start=0.0, end=110.0, heir="w2")
    for opened, more_s in ((130.0, BOUNDS.leaves_s), (110.0, 0.0)):
        following = Span(worker="w2", opened=opened, start=130.0)
        (gap,) = gaps({("in", 0): [released, following]}, [strike], BOUNDS, 200.0)
        assert gap.allowed == BOUNDS.handover_s + more_s


@pytest.mark.parametrize("leaves", [True, False])
def test_who_lacks_a_broker_may_have_done_something_twice_only_if_it_left_the_group(
    clean: History, *, leaves: bool
) -> None:
    """The worker that was killed in the clean run, as if it had lacked a broker."""
    facts = read_facts(clean)
    dead = next(strike for strike in clean.strikes if strike.dead)
    lacked = replace(dead, dead=(), lacking=dead.dead)
    owners = {place: worker for place, worker in facts.generations[-1].owners.items() if worker not in dead.dead}
    without = Generation(at=dead.at + 1.0, number=9, owners=owners)
    facts = replace(facts, generations=(*facts.generations, without)) if leaves else facts
    extracted, counted = copies(facts.extracted), copies(facts.counted)

    found = repeats(extracted, counted, deaths_of(facts, extracted, [lacked], BOUNDS))

    assert {repeat.death for repeat in found} == {lacked if leaves else None}


@pytest.mark.parametrize(
    ("case", "in_work_s", "times"),
    [
        ("longer than a rebalance waits", 30.5, 0),
        ("not for so long", 29.5, 1),
        ("by a worker that had died", 30.5, 1),
        ("committed", 30.5, 1),
        ("twice more", 30.5, 1),
    ],
)
def test_what_was_in_work_for_too_long_at_a_rebalance_may_be_done_once_more(
    clean: History, case: str, in_work_s: float, times: int
) -> None:
    """An output, a generation that begins so long after it, and one more output about the same flight behind that."""
    facts = read_facts(clean)
    row = facts.extracted[len(facts.extracted) // 2]
    rebalance = replace(facts.generations[0], at=row.at + in_work_s)
    again = row._replace(offset=10**6, at=rebalance.at + 1.0)
    died = Strike(case=case, at=row.at + 9.0, over_at=row.at + 9.5, steered_at=again.at, dead=(row.worker,))
    extracted = copies([*facts.extracted, *[again] * (2 if case == "twice more" else 1)])
    facts = replace(facts, generations=(rebalance,), commits=facts.commits if case == "committed" else ())

    deaths = deaths_of(facts, extracted, [died] if case == "by a worker that had died" else [], BOUNDS)

    assert len(repeats({row.sequence: extracted[row.sequence]}, {}, deaths)) == times
