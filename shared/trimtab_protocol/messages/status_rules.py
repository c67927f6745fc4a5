"""The part of the status about the rules of the cluster."""

from dataclasses import dataclass
from typing import Annotated

from trimtab_protocol.messages.codec import Inline, Text
from trimtab_protocol.messages.rules import Rule

MAX_TOLD = 1_000
"""Rules of one status: those of controller.toml and of operators, also those that are not followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleStatus:
    """A rule that the controller knows.

    `by`, `at` = the operator who has added it, and when (epoch seconds); None: it stands in controller.toml.
    `ignored` = why it is not followed; None: it is.
    """

    rule: Annotated[Rule, Inline()]
    by: Annotated[str | None, Text(200)] = None
    at: float | None = None
    ignored: Annotated[str | None, Text(500)] = None
