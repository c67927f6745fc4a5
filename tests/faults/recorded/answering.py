"""Do the agents' journals say what the agents said; has nobody obeyed twice, or what it refused or cannot trust?"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tests.faults.recorded.facts import Facts
from tests.faults.recorded.journalling import made_anew, within
from tests.faults.recorded.verdict import Broken, Violation

OPEN = "accepted"
"""The one phase of an ack that promises an answer to come."""
DENIED = ("refused", "expired")
UNVERIFIED = ("unsigned", "unknown_key", "wrong_signature")
"""Refusals of records that are no commands to the agent: it answers, and remembers nothing."""

UNSURE = ("generation", "failed", "commit_refused", "worker_away", "precondition")
"""Refusals of a release that may have been done all the same."""

Answer = tuple[str, str]
"""Command and phase."""


def _answers(journal: tuple[Mapping[str, Any], ...]) -> Counter[Answer]:
    """What an agent has noted of answers to commands, and how often."""
    acks = (entry["ack"] for entry in journal if entry["entry"] in ("admitted", "acked"))
    return Counter((ack["command_id"], ack["phase"]) for ack in acks)


def unnoted(facts: Facts) -> Iterator[Violation]:
    """Answers of an agent that its journal does not hold: were it killed then, it would obey again."""
    noted = {host: _answers(journal) for host, journal in facts.journals.items()}
    for row in facts.acks:
        host, answer = row.body["host"], (row.body["command_id"], row.body["phase"])
        if answer not in noted.get(host, ()) and row.body["refusal"] not in UNVERIFIED:
            text = f"{host} said {answer[1]} to {answer[0]}, its journal does not"
            yield Violation(broken=Broken.UNNOTED, at=row.at, text=text)


def obeyed_twice(facts: Facts) -> Iterator[Violation]:
    """Commands that agents noted twice as accepted, or as carried out."""
    noted: Counter[Answer] = Counter()
    for journal in facts.journals.values():
        noted += _answers(journal)
    for (command, phase), count in sorted(noted.items()):
        if count > 1 and phase not in DENIED:
            text = f"{command}: {phase} is noted {count} times in the agents' journals"
            yield Violation(broken=Broken.OBEYED_TWICE, text=text)


def unheard(facts: Facts) -> Iterator[str]:
    """Answers that an agent knows the broker has stored, and that are not in the history: it has a hole."""
    heard = {(row.body["command_id"], row.body["phase"]) for row in facts.acks}
    away = made_anew(facts.acks)
    for host, journal in facts.journals.items():
        said_at = {
            (entry["ack"]["command_id"], entry["ack"]["phase"]): entry["ack"]["at"]
            for entry in journal
            if entry["entry"] in ("admitted", "acked")
        }
        for entry in journal:
            if entry["entry"] == "delivered":
                answer = entry["command_id"], entry["phase"]
                if answer not in heard and not within(said_at.get(answer, 0.0), away):
                    yield f"acks: {host} said {answer[1]} to {answer[0]}, and the broker had it"


def denied_and_done(facts: Facts) -> Iterator[Violation]:
    """Hand-overs that were taken though each of their prepares was refused, or released though each release was."""
    steps: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in facts.commands:
        steps[row.body["handover"], row.body["kind"]].add(row.body["id"])
    denied = {
        row.body["command_id"]
        for row in facts.acks
        if row.body["phase"] == "refused" and not (row.body["kind"] == "release" and row.body["refusal"] in UNSURE)
    }
    for row in facts.handovers:
        step = "prepare" if row.body["kind"] == "took" else "release"
        if (commands := steps[row.body["handover"], step]) and commands <= denied:
            text = f"hand-over {row.body['handover']}: {row.body['kind']}, and its {step} refused"
            yield Violation(broken=Broken.DENIED, at=row.at, text=text)


def unsigned(facts: Facts) -> Iterator[Violation]:
    """Commands that were obeyed, and placements, without the signature of a key that is trusted."""
    obeyed = {row.body["command_id"] for row in facts.acks if row.body["phase"] not in DENIED}
    for row in facts.commands:
        if not row.signed and row.body["id"] in obeyed:
            text = f"{row.body['host']} obeyed {row.body['kind']} {row.body['id']}"
            yield Violation(broken=Broken.UNSIGNED, at=row.at, text=text)
    for row in facts.placements:
        if not row.signed:
            text = f"placement of {row.body['app']}, epoch {row.epoch}"
            yield Violation(broken=Broken.UNSIGNED, at=row.at, text=text)
