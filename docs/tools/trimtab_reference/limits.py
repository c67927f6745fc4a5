"""docs/reference/limits.md: the limits that users may meet, with their numbers, as the code has them."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from trimtab_reference import ROOT
from trimtab_reference.markdown import amount, table
from trimtab_reference.source import Constant, Undocumented, numbers

IS_LIMIT = re.compile(r"MAX_\w+|\w+_LIMIT(_M?S)?|(?!IDLE)\w+_PER_S|\w+_AT_ONCE")
SECTIONS = (
    ("Messages, keys and settings", "shared"),
    ("Agent and Faust plug-in", "agent"),
    ("Controller and stream", "controller"),
)
SHOWN = {
    "shared": """
        console_documents.MAX_PAGE copies.MAX_COPIES decode.MAX_NAME decode.MAX_MESSAGE_BYTES events.MAX_EVENT_BYTES
        events.MAX_MOVES host_keys.MAX_KEYS intents.MAX_WORKERS intents.MAX_MOVES keys.MAX_TRUSTED keys.MAX_TRUST_FILE
        metrics_port.MAX_CONNECTIONS metrics_port.CONNECTION_LIMIT_S names.MAX_PARTITIONS placement.MAX_OPERATORS
        placement.MAX_WANTED_STANDBYS placement.MAX_MOVING placement_parts.MAX_KEY_GROUPS report.MAX_WORKERS
        report.MAX_KEY_GROUPS report.MAX_REPORT_BYTES report.MAX_CORES rules.MAX_PATTERNS rules.MAX_RANGES
        rules.MAX_PRIORITY rules.MAX_REASON snapshot.MAX_SNAPSHOT_BYTES snapshot.MAX_NODES""",
    "agent": """
        command_checks.FUTURE_LIMIT_S configuration.MAX_WORKERS configuration.MAX_SOCKET_PATH_BYTES copies.MAX_AGE_S
        credentials.TOKEN_LIMIT_S daemon.END_LIMIT_S ending.END_LIMIT_S kafka_link.DELIVERY_LIMIT_S
        plugin_server.ARRIVALS_PER_S plugin_server.BYTES_PER_S plugin_server.HELLO_LIMIT_S
        plugin_server.MAX_CONNECTIONS plugin_server.MAX_HELD_BYTES plugin_server.MAX_HELLO_BYTES
        plugin_server.MAX_UNSENT_BYTES processes.MAX_LOG_BYTES thread.COMMIT_LIMIT_S""",
    "controller": """
        alternatives.MAX_ALTERNATIVES assemble.MAX_APPS configuration.MAX_HOSTS configuration.MAX_MIGRATIONS
        events.MAX_EVENTS hook.MAX_OUTPUT_BYTES inbox.ACKS_AT_ONCE inbox.ACKS_PER_S inbox.MAX_INTENTS kept.MAX_APPS
        kept.MAX_UNRUN kept.NEW_AT_ONCE modes.MAX_EXPRESSIONS operator.WRITE_LIMIT_S outlet.MAX_HELD
        pipeline.MAX_BYTES_S pipeline.MAX_REPORTS_S placing.MOST_AT_ONCE resources.MAX_WORKERS rounds.MAX_APPS
        settings.MAX_APPS settings.MAX_FREEZES speeds.MAX_TYPES""",
}
"""Module and name of what a page for users lists; all others bound what only our own parts send each other."""


def render() -> str:
    """The page."""
    parts = [
        "# Limits",
        "Sizes, counts and times that are built in and that you may meet. [The failure model](../failure-model.md) "
        "says what happens beyond them. Limits that you can set are in [configuration](configuration.md), each with "
        "its range.",
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
                    yield text, amount(limit.value, limit.name)
    if missing:
        raise Undocumented(f"{folder.name}: there is no limit {sorted(missing)}: correct SHOWN in {__name__}")


def meaning(limit: Constant) -> str:
    """What the source says about a limit; raises Undocumented."""
    if not limit.text:
        where = limit.path.relative_to(ROOT)
        raise Undocumented(f'{where}: {limit.name} is a limit without a text: put a """docstring""" below it')
    return limit.text
