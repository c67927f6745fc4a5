"""Violations to plant among what is commanded, journalled, answered and handed over."""

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.faults.recorded.history import PLANTED, History
from tests.faults.recorded.planted import added, body, edited, own, plants, such, with_rows, without
from tests.faults.recorded.verdict import Broken


@plants(Broken.TAKEN_TWICE)
def a_handover_is_taken_again(history: History) -> History:
    topic = own(history, "handover")
    return added(history, topic, such(history, topic, kind="took")[0])


@plants(Broken.TAKEN_TWICE, Broken.FORGED, Broken.UNNOTED)
def two_commands_carry_out_one_handover(history: History) -> History:
    topic = own(history, "acks")
    return added(history, topic, such(history, topic, phase="took")[0], body={"command_id": "0" * 32})


@plants(Broken.TAKEN_TWICE)
def a_successor_releases_what_was_taken(history: History) -> History:
    topic, commands = own(history, "handover"), own(history, "commands")
    took = history.of(topic)[such(history, topic, kind="took")[-1]]
    release = such(history, commands, kind="release", handover=body(took)["handover"])[0]
    return edited(history, commands, release, at=took.at + 1.0)


@plants(Broken.EPOCH_BACK)
def an_agent_obeys_a_predecessor(history: History) -> History:
    topic = own(history, "acks")
    newest = body(history.of(topic)[-1])["epoch"]
    return edited(history, topic, such(history, topic, phase="accepted")[0], body={"epoch": newest})


@plants(Broken.STALE)
def an_agent_obeys_after_the_deadline(history: History) -> History:
    deadline = body(history.own("commands")[_obeyed(history)])["deadline"]
    topic = own(history, "acks")
    return edited(history, topic, such(history, topic, phase="accepted")[0], body={"at": deadline})


@plants(Broken.EPOCH_BACK)
def a_predecessor_publishes_a_placement(history: History) -> History:
    return added(history, own(history, "placement"), 0)


@plants(Broken.EPOCH_BACK)
def a_predecessor_writes_to_the_journal(history: History) -> History:
    return added(history, own(history, "journal"), -1)


@plants(Broken.EPOCH_BACK, Broken.UNANSWERED, Broken.UNJOURNALLED)
def a_predecessor_commands(history: History) -> History:
    return added(history, own(history, "commands"), 0, body={"id": "0" * 32})


@plants(Broken.REUSED_ID, Broken.UNSIGNED)
def a_command_comes_again_with_another_deadline(history: History) -> History:
    deadline = body(history.own("commands")[0])["deadline"]
    return added(history, own(history, "commands"), 0, body={"deadline": deadline + 1.0})


@plants(Broken.UNANSWERED)
def an_agent_never_answers(history: History) -> History:
    return unheard_of(history, body(history.own("commands")[0])["id"])


@plants(Broken.UNANSWERED, Broken.NO_RECORD)
def an_agent_accepts_and_is_silent_then(history: History) -> History:
    command = body(history.own("commands")[0])["id"]
    topic = own(history, "acks")
    accepted = such(history, topic, command_id=command, phase="accepted")
    return without(history, topic, *(set(such(history, topic, command_id=command)) - set(accepted)))


@plants(Broken.FORGED, Broken.UNNOTED)
def an_agent_obeys_a_forged_command(history: History) -> History:
    commands, acks = own(history, "commands"), own(history, "acks")
    forged = {"id": "f" * 32, "handover": "9.9-0"}
    history = added(history, commands, 0, body=forged, headers={PLANTED: b"1"})
    return added(history, acks, such(history, acks, phase="prepared")[0], body={"command_id": "f" * 32})


@plants(Broken.FORGED)
def workers_hand_over_what_nobody_commanded(history: History) -> History:
    return added(history, own(history, "handover"), 0, body={"handover": "9.9-0"})


@plants(Broken.FORGED)
def workers_hand_over_more_than_was_commanded(history: History) -> History:
    topic = own(history, "handover")
    took = such(history, topic, kind="took")[0]
    key_groups = body(history.of(topic)[took])["key_groups"]
    return edited(history, topic, took, body={"key_groups": [*key_groups, "flights/extract/7"]})


@plants(Broken.FORGED)
def an_agent_obeys_what_is_for_another_host(history: History) -> History:
    command = body(history.own("commands")[_obeyed(history)])
    host, other = command["host"], next(each for each in history.journals if each != command["host"])
    topic = own(history, "acks")
    for number in such(history, topic, command_id=command["id"]):
        history = edited(history, topic, number, body={"host": other})
    noted = [each for each in _entries(history, host) if command["id"] in each]
    history = _with_entries(history, host, [each for each in _entries(history, host) if each not in noted])
    return _with_entries(history, other, [*_entries(history, other), *noted])


@plants(Broken.ASTRAY, Broken.UNSIGNED)
def a_generation_does_not_follow_the_placement(history: History) -> History:
    topic = own(history, "placement")
    others = {b'"w0"': b'"w1"', b'"w1"': b'"w2"', b'"w2"': b'"w0"'}
    rows = [
        row._replace(value=re.sub(rb'"w\d"', lambda found: others[found.group()], row.value or b""))
        for row in history.of(topic)
    ]
    return with_rows(history, topic, rows)


@plants(Broken.UNPLACED, Broken.UNSIGNED)
def a_placement_gives_nobody_anything(history: History) -> History:
    topic = own(history, "placement")
    last = len(history.of(topic)) - 1
    owners = body(history.of(topic)[last])["owners"]
    nobody: dict[str, list[list[str]]] = {operator: [[] for _ in partitions] for operator, partitions in owners.items()}
    return edited(history, topic, last, body={"owners": nobody})


@plants(Broken.DENIED, Broken.UNNOTED, Broken.NO_RECORD)
def a_worker_takes_what_its_agent_refused(history: History) -> History:
    topic = own(history, "acks")
    return edited(history, topic, such(history, topic, phase="prepared")[-1], body={"phase": "refused"})


@plants(Broken.DENIED, Broken.UNNOTED, Broken.NO_RECORD)
def a_worker_releases_what_its_agent_refused(history: History) -> History:
    topic = own(history, "acks")
    refused = {"phase": "refused", "refusal": "drain_timeout"}
    return edited(history, topic, such(history, topic, phase="released")[-1], body=refused)


@plants(Broken.UNSIGNED)
def an_agent_obeys_what_nobody_signed(history: History) -> History:
    return edited(history, own(history, "commands"), _obeyed(history), headers={})


@plants(Broken.UNSIGNED)
def an_agent_obeys_what_was_signed_for_another_host(history: History) -> History:
    return edited(history, own(history, "commands"), _obeyed(history), key=b"elsewhere")


@plants(Broken.UNSIGNED)
def a_placement_is_changed_on_its_way(history: History) -> History:
    topic = own(history, "placement")
    return edited(history, topic, 0, value=(history.of(topic)[0].value or b"") + b" ")


def _obeyed(history: History) -> int:
    """A command that an agent accepted."""
    acks = own(history, "acks")
    accepted = body(history.of(acks)[such(history, acks, phase="accepted")[0]])["command_id"]
    return such(history, own(history, "commands"), id=accepted)[0]


# ---------------------------------------------------------------------- who hands over
@plants(Broken.NOT_TAKEN, Broken.UNOWNED)
def nobody_says_that_it_has_taken_the_last_of_all(history: History) -> History:
    topic = own(history, "handover")
    return without(history, topic, such(history, topic, kind="took")[-1])


@plants(Broken.NOT_TAKEN)
def nobody_says_that_it_has_released(history: History) -> History:
    topic = own(history, "handover")
    return without(history, topic, such(history, topic, kind="released")[-1])


# ---------------------------------------------------------------------- the controller's journal
def _journal(history: History) -> tuple[str, list[dict[str, Any]]]:
    topic = own(history, "journal")
    return topic, [body(row) for row in history.of(topic)]


@plants(Broken.JOURNAL_GAP)
def an_entry_without_a_publication_is_missing(history: History) -> History:
    topic, entries = _journal(history)
    published = {tuple(body(row)["epoch"]) for part in ("placement", "commands") for row in history.own(part)}
    mute = [
        number
        for number, row in enumerate(entries)
        if (row["generation"], row["number"]) not in published and number > 0
    ]
    return without(history, topic, mute[0])


@plants(Broken.JOURNAL_GAP, Broken.UNJOURNALLED)
def an_entry_is_missing(history: History) -> History:
    topic = own(history, "journal")
    epoch = body(history.own("commands")[0])["epoch"]
    return without(history, topic, such(history, topic, generation=epoch[0], number=epoch[1])[0])


@plants(Broken.JOURNAL_GAP, Broken.UNJOURNALLED)
def the_journal_begins_late(history: History) -> History:
    return without(history, own(history, "journal"), 0, 1)


@plants(Broken.JOURNAL_GAP)
def the_last_entry_is_missing(history: History) -> History:
    topic, entries = _journal(history)
    return without(history, topic, len(entries) - 1)


@plants(Broken.UNJOURNALLED)
def a_command_is_journalled_when_it_is_published(history: History) -> History:
    topic, commands = own(history, "journal"), history.own("commands")
    epoch = body(commands[0])["epoch"]
    entry = such(history, topic, generation=epoch[0], number=epoch[1])[0]
    return edited(history, topic, entry, at=commands[0].at + 1.0)


@plants(Broken.UNJOURNALLED, Broken.UNPUBLISHED)
def an_entry_speaks_of_another_command(history: History) -> History:
    topic, commands = own(history, "journal"), history.own("commands")
    first = body(next(row for row in commands if body(row)["kind"] == "prepare"))
    entry = such(history, topic, generation=first["epoch"][0], number=first["epoch"][1])[0]
    value = (history.of(topic)[entry].value or b"").replace(first["id"].encode(), b"0" * 32)
    return edited(history, topic, entry, value=value)


@plants(Broken.UNPUBLISHED)
def a_placement_is_journalled_and_not_published(history: History) -> History:
    return without(history, own(history, "placement"), 1)


@plants(Broken.UNPUBLISHED, Broken.FORGED)
def a_command_is_journalled_and_not_published(history: History) -> History:
    return without(history, own(history, "commands"), _obeyed(history))


@plants(Broken.PLAN_AGAIN)
def a_plan_goes_on_after_its_end(history: History) -> History:
    topic, entries = _journal(history)
    begun = next(number for number, row in enumerate(entries) if row["round"] and not row["round"]["ended_at"])
    return edited(history, topic, begun, body={"round": {**entries[begun]["round"], "ended_at": 1.0}})


@plants(Broken.PLAN_AGAIN)
def a_plan_begins_again(history: History) -> History:
    topic, entries = _journal(history)
    first = next(row["round"] for row in entries if row["round"])
    last = len(entries) - 1
    return edited(history, topic, last, body={"round": {**entries[last]["round"], "plan": first["plan"]}})


@plants(Broken.PLAN_AGAIN)
def a_plan_begins_while_another_is_under_way(history: History) -> History:
    topic, entries = _journal(history)
    rounds = [row["round"] or {"plan": ""} for row in entries]
    begun = [
        number for number in range(1, len(entries)) if rounds[number - 1]["plan"] not in ("", rounds[number]["plan"])
    ]
    for number in range(begun[0]):
        if rounds[number]["plan"] == rounds[begun[0] - 1]["plan"]:
            history = edited(history, topic, number, body={"round": {**rounds[number], "ended_at": None}})
    return edited(history, topic, begun[0] - 1, body={"round": {**rounds[begun[0] - 1], "ended_at": None}})


# ---------------------------------------------------------------------- the agents' journals
def _with_entries(history: History, host: str, entries: list[str]) -> History:
    """The history in which the agent has written these instead, each with its checksum."""
    lines, before = [], ""
    for entry in entries:
        before = f"{zlib.crc32((before + entry).encode()):08x}"
        lines.append(f"{before} {entry}\n")
    return replace(history, journals={**history.journals, host: "".join(lines)})


def _entries(history: History, host: str) -> list[str]:
    return [line.partition(" ")[2] for line in history.journals[host].splitlines()]


def unheard_of(history: History, command: str) -> History:
    """The history in which no agent has heard of a command."""
    topic = own(history, "acks")
    history = without(history, topic, *such(history, topic, command_id=command))
    for host in history.journals:
        history = _with_entries(history, host, [each for each in _entries(history, host) if command not in each])
    return history


def _noted(history: History, **cells: Any) -> tuple[str, list[str], int]:
    """A host, the entries of its journal, and the number of the last one that has these cells."""
    for host in history.journals:
        entries = _entries(history, host)
        for number, text in reversed(list(enumerate(entries))):
            entry: Mapping[str, Any] = json.loads(text)
            if all({**entry, **entry.get("ack", {})}.get(name) == cell for name, cell in cells.items()):
                return host, entries, number
    raise AssertionError(f"no journal has {cells}")


@plants(Broken.UNNOTED)
def an_agent_forgets_what_it_answered(history: History) -> History:
    host, entries, number = _noted(history, entry="acked")
    return _with_entries(history, host, entries[:number] + entries[number + 1 :])


@plants(Broken.UNNOTED)
def the_journal_of_an_agent_is_empty(history: History) -> History:
    host, entries, _ = _noted(history, entry="admitted")
    return _with_entries(history, host, entries[:1])


@plants(Broken.OBEYED_TWICE)
def an_agent_admits_a_command_twice(history: History) -> History:
    host, entries, number = _noted(history, entry="admitted", phase="accepted")
    return _with_entries(history, host, [*entries, entries[number]])


@plants(Broken.OBEYED_TWICE)
def two_agents_release_by_one_command(history: History) -> History:
    host, entries, number = _noted(history, entry="acked", phase="released")
    other = next(each for each in history.journals if each != host)
    return _with_entries(history, other, [*_entries(history, other), entries[number]])


@plants(Broken.NO_RECORD)
def an_answer_that_the_broker_had_is_not_in_the_history(history: History) -> History:
    topic = own(history, "acks")
    return without(history, topic, such(history, topic, phase="accepted")[0])


@plants(Broken.NO_RECORD)
def a_line_of_an_agents_journal_is_missing(history: History) -> History:
    host, _, number = _noted(history, entry="delivered", phase="accepted")
    lines = history.journals[host].splitlines(keepends=True)
    text = "".join(lines[:number] + lines[number + 1 :])
    return replace(history, journals={**history.journals, host: text})


@plants(Broken.NO_RECORD)
def a_digit_of_an_agents_journal_has_changed(history: History) -> History:
    host, entries, number = _noted(history, entry="position")
    text = history.journals[host].replace(entries[number], entries[number].replace("0", "1"))
    return replace(history, journals={**history.journals, host: text})
