"""What operators have asked for and is still wanted, in `trimtab status`."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from trimtab_controller.decider.rules.known import still_wanted
from trimtab_controller.loop.events.of_status import worded
from trimtab_protocol.messages.decode import printable
from trimtab_protocol.messages.intents import Intent
from trimtab_protocol.wording import time_span

SHOWN = 10


def intents_text(intents: Mapping[str, Intent | None] | None, now: float) -> Text | None:
    """One line for each, the newest first; None if there are none."""
    if intents is None:
        return Text("unknown: the topic of intents cannot be read", "yellow")
    known = sorted(_wanted(intents, now), key=lambda each: each.at, reverse=True)
    rows = [f"{worded(each)[0]}, by {each.by} {time_span(now - each.at)} ago: {each.reason}" for each in known]
    unread = sorted(key for key, each in intents.items() if each is None)
    rows += [f"{printable(key)}: this version cannot read it" for key in unread]
    more = [f"and {len(rows) - SHOWN} more (--json has all)"] if len(rows) > SHOWN else []
    return Text("\n".join([*rows[:SHOWN], *more])) if rows else None


def intents_documents(intents: Mapping[str, Intent | None] | None, now: float) -> list[dict[str, Any]] | None:
    """The same as JSON; of what cannot be read only the key is known."""
    if intents is None:
        return None
    wanted = {each.key for each in _wanted(intents, now)}
    return [
        {"key": key, "text": None, "by": None, "at": None, "reason": None}
        if each is None
        else {"key": key, "text": worded(each)[0], "by": each.by, "at": each.at, "reason": each.reason}
        for key, each in sorted(intents.items())
        if each is None or key in wanted
    ]


def _wanted(intents: Mapping[str, Intent | None], now: float) -> tuple[Intent, ...]:
    return still_wanted((each for each in intents.values() if each is not None), now)
