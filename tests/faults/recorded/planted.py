"""Violations of each kind to plant into a clean history; each changes as little as such a defect would leave behind."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.faults.recorded.facts import APP, CHANGELOG, DELAYS, SOURCE, TOTALS, WRITER
from tests.faults.recorded.groups import place_of_commit, read_group
from tests.faults.recorded.history import OFFSETS, History, Row, Strike
from tests.faults.recorded.verdict import Broken

Plant = Callable[[History], History]
PLANTS: list[tuple[Plant, frozenset[Broken]]] = []
"""Each with all that it breaks."""
FAR_S = 60.0
STILL_S = 15.0
SESSION_S = 10.0


def plants(broken: Broken, *besides: Broken) -> Callable[[Plant], Plant]:
    """Say what a plant breaks, and what cannot stay whole then."""

    def register(plant: Plant) -> Plant:
        PLANTS.append((plant, frozenset({broken, *besides})))
        return plant

    return register


# ---------------------------------------------------------------------- how
def body(row: Row) -> Any:
    """The JSON of a row."""
    return json.loads(row.value or b"{}")


def with_rows(history: History, topic: str, rows: Sequence[Row]) -> History:
    """The history with another content of one topic."""
    return replace(history, rows={**history.rows, topic: tuple(rows)})


def edited(history: History, topic: str, number: int, **cells: Any) -> History:
    """One row changed; `body` = cells of its JSON."""
    rows = list(history.of(topic))
    row = rows[number]
    if changed := cells.pop("body", None):
        cells["value"] = json.dumps({**body(row), **changed}).encode()
    rows[number] = row._replace(**cells)
    return with_rows(history, topic, rows)


def added(history: History, topic: str, number: int, **cells: Any) -> History:
    """A row once more, changed, at the end of its partition."""
    rows = list(history.of(topic))
    row = rows[number]
    end = max(place for place, other in enumerate(rows) if other.partition == row.partition)
    rows.insert(end + 1, row._replace(offset=rows[end].offset + 1, at=rows[end].at))
    return edited(with_rows(history, topic, rows), topic, end + 1, **cells)


def without(history: History, topic: str, *numbers: int) -> History:
    """Without some rows; what is behind them moves up, as if they had never been written."""
    rows = history.of(topic)
    gone = [rows[number] for number in numbers]
    left = []
    for row in rows:
        if row not in gone:
            before = sum(1 for other in gone if other.partition == row.partition and other.offset < row.offset)
            left.append(row._replace(offset=row.offset - before))
    return with_rows(history, topic, left)


def own(history: History, part: str) -> str:
    """The name of Trimtab's topic."""
    return f"trimtab.{history.cluster}.{part}"


def calm(history: History, topic: str, test: Callable[[Row], bool] = lambda row: True) -> int:
    """The number of a row between start and first fault."""
    start, fault = history.strikes[:2]
    rows = enumerate(history.of(topic))
    found = [number for number, row in rows if start.steered_at < row.at < fault.at and test(row)]
    return found[len(found) // 2]


def such(history: History, topic: str, **cells: Any) -> list[int]:
    """The numbers of the rows with these cells in their JSON."""
    rows = enumerate(history.of(topic))
    return [number for number, row in rows if all(body(row).get(name) == cell for name, cell in cells.items())]


# ---------------------------------------------------------------------- what the job does
@plants(Broken.LOST, Broken.COMMIT_AHEAD)
def an_output_is_missing(history: History) -> History:
    return without(history, TOTALS, calm(history, TOTALS))


@plants(Broken.LOST, Broken.COMMIT_AHEAD)
def an_input_never_reached_the_second_operator(history: History) -> History:
    number = calm(history, DELAYS)
    flight = body(history.of(DELAYS)[number])[0]
    counted = next(place for place, row in enumerate(history.of(TOTALS)) if body(row)[0] == flight)
    return without(without(history, DELAYS, number), TOTALS, counted)


@plants(Broken.REPEATED)
def an_input_is_counted_once_more(history: History) -> History:
    return added(history, TOTALS, len(history.of(TOTALS)) - 1)


@plants(Broken.REPEATED, Broken.LOST, Broken.TWO_OWNERS)
def a_death_repeats_what_was_committed_long_before(history: History) -> History:
    death = next(strike for strike in history.strikes if strike.dead)
    dead = death.dead[0].encode()
    rows = history.of(DELAYS)
    old = [
        number
        for number, row in enumerate(rows)
        if (row.headers[WRITER] or b"").startswith(dead) and death.at - 5.0 < row.at < death.at - 2.0
    ]
    return added(history, DELAYS, old[0])


@plants(Broken.REPEATED)
def a_new_owner_begins_before_what_was_committed_just_before_the_death(history: History) -> History:
    """It was done within the last interval between two commits, so the time alone would excuse it."""
    death = next(strike for strike in history.strikes if strike.dead)
    commits, _ = read_group(history.of(OFFSETS), APP)
    committed = {commit.place: commit.offset for commit in commits if commit.at <= death.at}
    done = {body(row)[0] for row in history.of(DELAYS) if row.offset < committed[DELAYS, row.partition]}
    rows = history.of(TOTALS)
    just_before = [
        number
        for number, row in enumerate(rows)
        if (row.headers[WRITER] or b"").startswith(death.dead[0].encode())
        and death.at - 1.0 < row.at < death.at
        and body(row)[0] in done
    ]
    return added(history, TOTALS, just_before[-1], headers=rows[-1].headers)


@plants(Broken.REPEATED)
def a_worker_that_is_cut_off_goes_on_after_its_session(history: History) -> History:
    """Nobody takes over, so its outputs are not another one's; it repeats them when it may commit again."""
    death = next(strike for strike in history.strikes if strike.dead)
    rows = history.of(TOTALS)
    times = Counter(body(row)[0] for row in rows)
    late = [
        number
        for number, row in enumerate(rows)
        if (row.headers[WRITER] or b"").startswith(death.dead[0].encode())
        and row.at > death.at + SESSION_S
        and times[body(row)[0]] == 1
    ]
    over_at = rows[late[0]].at + 1.0
    longer = replace(death, over_at=over_at, steered_at=max(over_at, death.steered_at))
    strikes = tuple(longer if strike is death else strike for strike in history.strikes)
    return added(replace(history, strikes=strikes), TOTALS, late[0], headers=rows[-1].headers)


@plants(Broken.FOREIGN)
def an_output_about_a_flight_that_was_never_sent(history: History) -> History:
    number = calm(history, TOTALS)
    return added(history, TOTALS, number, value=json.dumps([10**9, *body(history.of(TOTALS)[number])[1:]]).encode())


@plants(Broken.STALE_STATE, Broken.WRONG_ANSWER)
def a_worker_goes_on_from_an_old_state(history: History) -> History:
    again = [number for number, row in enumerate(history.of(CHANGELOG)) if body(row)[0] > 1]
    return edited(history, CHANGELOG, again[0], value=b"[1,0]")


def _of_key(history: History, number: int) -> list[int]:
    """The numbers of all records of the table's key that this record of the changelog is about."""
    rows = history.of(CHANGELOG)
    return [other for other, row in enumerate(rows) if row.key == rows[number].key]


def _outputs_of(history: History, number: int) -> Iterator[tuple[int, list[int]]]:
    """The outputs about the table's key of this record of the changelog: number and JSON."""
    key = json.loads(history.of(CHANGELOG)[number].key or b"")
    for output, row in enumerate(history.of(TOTALS)):
        if f"{(row.key or b'').decode()}/{body(row)[1]}" == key:
            yield output, body(row)


@plants(Broken.STALE_STATE)
def a_count_steps_back_and_the_next_record_makes_up_for_it(history: History) -> History:
    """In the end the table is right, and each output says what the table had: only the changelog's order tells."""
    rows = history.of(CHANGELOG)
    number = calm(history, CHANGELOG, lambda row: 3 <= body(row)[0] < body(_last_of(rows, row))[0])
    older = body(rows[next(other for other in _of_key(history, number) if body(rows[other])[0] == 1)])
    flights = body(rows[number])[0]
    (output,) = (output for output, said in _outputs_of(history, number) if said[2] == flights)
    said = [*body(history.of(TOTALS)[output])[:2], *older]
    back = edited(history, CHANGELOG, number, value=json.dumps(older).encode())
    return edited(back, TOTALS, output, value=json.dumps(said).encode())


def _last_of(rows: Sequence[Row], row: Row) -> Row:
    return next(other for other in reversed(rows) if other.key == row.key)


@plants(Broken.STALE_STATE, Broken.WRONG_SUM)
def an_older_state_is_written_over_the_newest(history: History) -> History:
    rows = history.of(CHANGELOG)
    newest = max(number for number, row in enumerate(rows) if body(row)[0] > 1)
    oldest = rows[_of_key(history, newest)[0]]
    return added(history, CHANGELOG, newest, value=oldest.value, headers=rows[-1].headers)


@plants(Broken.STALE_STATE, Broken.WRONG_SUM)
def a_new_owner_goes_on_from_a_state_that_lacks_a_flight(history: History) -> History:
    """All that it says is what its table has, which lacks for good what the owner before it had counted last."""
    rows = list(history.of(CHANGELOG))
    writers = [(row.headers[WRITER] or b"").partition(b":")[0] for row in rows]
    taken, before = next(
        (number, earlier)
        for number in range(len(rows))
        if len(earlier := [other for other in _of_key(history, number) if other < number]) > 1
        and writers[earlier[-1]] != writers[number]
    )
    newest, older = body(rows[before[-1]]), body(rows[before[-2]])
    lacks = newest[0] - older[0], newest[1] - older[1]
    for number in _of_key(history, taken):
        if number >= taken:
            flights, minutes = body(rows[number])
            value = json.dumps([flights - lacks[0], minutes - lacks[1]]).encode()
            rows[number] = rows[number]._replace(value=value)
    planted = with_rows(history, CHANGELOG, rows)
    for output, (sequence, year, flights, minutes) in _outputs_of(history, taken):
        if flights > newest[0]:
            value = json.dumps([sequence, year, flights - lacks[0], minutes - lacks[1]]).encode()
            planted = edited(planted, TOTALS, output, value=value)
    return planted


@plants(Broken.TWO_OWNERS, Broken.WRONG_SUM)
def a_record_of_the_table_is_in_a_partition_where_its_key_is_not(history: History) -> History:
    """It is behind the later ones when all partitions are read one by one, and no count has stepped back."""
    number = calm(history, CHANGELOG, lambda row: body(row)[0] < body(_last_of(history.of(CHANGELOG), row))[0])
    astray = history.of(CHANGELOG)[number]
    left = without(history, CHANGELOG, number)
    last = max(row.partition for row in left.of(CHANGELOG))
    return with_rows(left, CHANGELOG, [*left.of(CHANGELOG), astray._replace(partition=last + 1, offset=0)])


@plants(Broken.WRONG_SUM, Broken.WRONG_ANSWER)
def a_sum_is_wrong_and_its_count_is_right(history: History) -> History:
    last = len(history.of(CHANGELOG)) - 1
    flights, minutes = body(history.of(CHANGELOG)[last])
    return edited(history, CHANGELOG, last, value=json.dumps([flights, minutes + 1]).encode())


@plants(Broken.WRONG_SUM, Broken.WRONG_ANSWER)
def a_flight_is_in_the_outputs_and_not_in_the_table(history: History) -> History:
    return without(history, CHANGELOG, len(history.of(CHANGELOG)) - 1)


def _later_counts(history: History, more: int) -> History:
    """The table has some more flights of a key from a calm time on."""
    rows = list(history.of(CHANGELOG))
    first = calm(history, CHANGELOG)
    for number, row in enumerate(rows):
        if number >= first and row.key == rows[first].key:
            flights, minutes = body(row)
            rows[number] = row._replace(value=json.dumps([flights + more, minutes]).encode())
    return with_rows(history, CHANGELOG, rows)


@plants(Broken.WRONG_SUM, Broken.WRONG_ANSWER)
def a_worker_counts_a_flight_twice_while_all_is_calm(history: History) -> History:
    return _later_counts(history, 1)


@plants(Broken.WRONG_ANSWER)
def an_output_says_what_the_table_never_had(history: History) -> History:
    number = calm(history, TOTALS)
    sequence, year, flights, minutes = body(history.of(TOTALS)[number])
    return edited(history, TOTALS, number, value=json.dumps([sequence, year, flights + 1, minutes]).encode())


@plants(Broken.NO_RECORD, Broken.WRONG_ANSWER)
def a_record_is_not_in_the_history(history: History) -> History:
    rows = list(history.of(CHANGELOG))
    return with_rows(history, CHANGELOG, [*rows[:5], *rows[6:]])


@plants(Broken.NO_RECORD, Broken.LOST, Broken.COMMIT_AHEAD)
def a_record_does_not_say_who_wrote_it(history: History) -> History:
    return edited(history, DELAYS, calm(history, DELAYS), headers={})


@plants(Broken.NO_RECORD)
def an_ack_is_torn(history: History) -> History:
    return edited(history, own(history, "acks"), 0, value=b'{"v":1,"clus')


@plants(Broken.NO_RECORD, Broken.FOREIGN, Broken.COMMIT_AHEAD, Broken.WRONG_SUM)
def a_topic_of_the_job_was_not_dumped(history: History) -> History:
    return with_rows(history, SOURCE, ())


# ---------------------------------------------------------------------- who owns
def _other(worker: bytes | None) -> dict[str, bytes]:
    return {WRITER: b"w0:1" if not (worker or b"").startswith(b"w0") else b"w1:1"}


@plants(Broken.TWO_OWNERS)
def another_worker_writes_to_a_changelog(history: History) -> History:
    number = calm(history, CHANGELOG)
    return edited(history, CHANGELOG, number, headers=_other(history.of(CHANGELOG)[number].headers[WRITER]))


@plants(Broken.TWO_OWNERS)
def another_worker_counts_an_input(history: History) -> History:
    number = calm(history, TOTALS)
    return edited(history, TOTALS, number, headers=_other(history.of(TOTALS)[number].headers[WRITER]))


@plants(Broken.TWO_OWNERS)
def another_process_of_the_owner_writes_in_between(history: History) -> History:
    number = calm(history, CHANGELOG)
    worker = (history.of(CHANGELOG)[number].headers[WRITER] or b"").partition(b":")[0]
    return edited(history, CHANGELOG, number, headers={WRITER: worker + b":1"})


@plants(Broken.TWO_OWNERS)
def the_old_owner_writes_once_more_after_its_release(history: History) -> History:
    changelog = history.of(CHANGELOG)
    for handover in history.own("handover"):
        for topic, partition, end in body(handover).get("ends", ()):
            late = [
                number
                for number, row in enumerate(changelog)
                if topic == CHANGELOG and (row.partition, row.offset) == (partition, end)
            ]
            if late:
                writer = next(
                    row.headers[WRITER]
                    for row in reversed(changelog[: late[0]])
                    if (row.headers[WRITER] or b"").startswith(body(handover)["source"].encode())
                )
                return edited(history, CHANGELOG, late[0], headers={WRITER: writer}, at=handover.at)
    raise AssertionError("the history has no hand-over with a changelog")


@plants(Broken.UNOWNED)
def nobody_takes_what_was_released(history: History) -> History:
    topic = own(history, "handover")
    took = such(history, topic, kind="took")[-1]
    return edited(history, topic, took, at=history.of(topic)[took].at + 9.0)


@plants(Broken.UNOWNED)
def the_group_does_not_notice_a_death(history: History) -> History:
    death = next(strike for strike in history.strikes if strike.dead)
    rows = [
        row._replace(at=row.at + FAR_S) if place_of_commit(row)[1] is None and row.at > death.at else row
        for row in history.of(OFFSETS)
    ]
    return with_rows(history, OFFSETS, rows)


def _commits(history: History) -> list[int]:
    """Commits of the source's first recorded place, those of a calm time."""
    start, fault = history.strikes[:2]
    rows = [(number, row) for number, row in enumerate(history.of(OFFSETS)) if start.steered_at < row.at < fault.at]
    places = [place_of_commit(row)[1] for _, row in rows]
    chosen = next(place for place in places if place is not None and place[0] == SOURCE)
    return [number for (number, _), place in zip(rows, places, strict=True) if place == chosen]


@plants(Broken.COMMIT_BACK)
def somebody_commits_what_it_had_before(history: History) -> History:
    early, *_, late = _commits(history)
    return edited(history, OFFSETS, late, value=history.of(OFFSETS)[early].value)


@plants(Broken.COMMIT_AHEAD, Broken.COMMIT_BACK)
def somebody_commits_what_is_not_done(history: History) -> History:
    early, *_, late = _commits(history)
    return edited(history, OFFSETS, early, value=history.of(OFFSETS)[late].value)


@plants(Broken.STOOD_STILL, Broken.COMMIT_AHEAD)
def a_key_group_stands_still_for_a_while(history: History) -> History:
    partition = history.of(DELAYS)[calm(history, DELAYS)].partition
    end = history.strikes[1].at
    rows = [
        row._replace(at=end) if row.partition == partition and end - STILL_S < row.at < end else row
        for row in history.of(DELAYS)
    ]
    return with_rows(history, DELAYS, rows)


@plants(Broken.WENT_ON)
def a_worker_goes_on_though_it_lacks_a_broker(history: History) -> History:
    rows = history.of(DELAYS)
    first, last = rows[0].at, max(row.at for row in rows)
    worker = (rows[calm(history, DELAYS)].headers[WRITER] or b"").decode().partition(":")[0]
    lack = Strike(case="x", at=first, over_at=last, steered_at=last, lacking=(worker,))
    return replace(history, strikes=(lack, *history.strikes))
