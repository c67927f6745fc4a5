"""docs/reference/limits.md: the limits that users may meet, with their numbers, as the code has them."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from trimtab_reference import ROOT
from trimtab_reference.markdown import amount, table
from trimtab_reference.source import Constant, Undocumented, numbers

IS_LIMIT = re.compile(r"MAX_\w+|\w+_LIMIT(_M?S)?|(?!IDLE)\w+_PER_S|\w+_AT_ONCE")
SECTIONS = (
    ("Cluster", "shared"),
    ("Agent and Faust plug-in", "agent"),
    ("Controller and stream", "controller"),
)
SHOWN = {
    "shared": """
        console_documents.MAX_PAGE decode.MAX_NAME events.MAX_MOVES intents.MAX_MOVES keys.MAX_TRUST_FILE
        names.MAX_PARTITIONS placement.MAX_OPERATORS placement.MAX_WANTED_STANDBYS placement.MAX_MOVING
        placement_parts.MAX_KEY_GROUPS report.MAX_WORKERS report.MAX_KEY_GROUPS rules.MAX_PATTERNS rules.MAX_RANGES
        rules.MAX_REASON snapshot.MAX_NODES""",
    "agent": """
        command_checks.FUTURE_LIMIT_S configuration.MAX_SOCKET_PATH_BYTES copies.MAX_AGE_S kafka_link.DELIVERY_LIMIT_S
        processes.MAX_LOG_BYTES""",
    "controller": """
        alternatives.MAX_ALTERNATIVES configuration.MAX_HOSTS events.MAX_EVENTS absences.MAX_APPS
        plan_settings.MAX_EXPRESSIONS forecasts.MAX_APPS scaling.MAX_APPS speeds.MAX_TYPES""",
}
"""Module and name of what a user may meet.  The failure model has the limits of senders."""


def render() -> str:
    """The page."""
    parts = [
        "# Limits",
        "Built-in limits that you may meet. The [failure model](../failure-model.md"
        "#a-sender-that-sends-too-much-does-not-hold-up-the-others) has those of senders, and "
        "[configuration](configuration.md) those that you can set.",
    ]
    for title, folder in SECTIONS:
        parts += [f"## {title}", table(("limit", "value"), _rows(ROOT / folder, SHOWN[folder].split()))]
    return "\n\n".join(parts)


def _rows(folder: Path, shown: Collection[str]) -> Iterator[tuple[str, str]]:
    missing = set(shown)
    for path in sorted(folder.rglob("*.py")):
        for limit in numbers(path):
            if IS_LIMIT.fullmatch(limit.name):
                text, name = meaning(limit), f"{path.stem}.{limit.name}"
                missing.discard(name)
                if name in shown:
                    yield re.split(r"(?<=\.) ", text, maxsplit=1)[0], amount(limit.value, limit.name)
    if missing:
        raise Undocumented(f"{folder.name}: there is no limit {sorted(missing)}: correct SHOWN in {__name__}")


def meaning(limit: Constant) -> str:
    """What the source says about a limit; raises Undocumented."""
    if not limit.text:
        where = limit.path.relative_to(ROOT)
        raise Undocumented(f'{where}: {limit.name} is a limit without a text: put a """docstring""" below it')
    return limit.text
