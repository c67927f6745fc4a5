"""The part of the status about the rules of the cluster."""

from dataclasses import dataclass
from typing import Any

from trimtab_protocol.messages.decode import Fields
from trimtab_protocol.messages.rules import Rule, read_rule, rule_document

MAX_TOLD = 1_000
"""Rules of one status: those of controller.toml and of operators, also those that are not followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleStatus:
    """A rule that the controller knows.

    `by`, `at` = the operator who has added it, and when (epoch seconds); None: it stands in controller.toml.
    `ignored` = why it is not followed; None: it is.
    """

    rule: Rule
    by: str | None = None
    at: float | None = None
    ignored: str | None = None

    @property
    def document(self) -> dict[str, Any]:
        """As JSON."""
        told = {"reason": self.rule.reason, "by": self.by, "at": self.at, "ignored": self.ignored}
        return rule_document(self.rule) | {name: value for name, value in told.items() if value is not None}


def read_rule_status(row: Fields) -> RuleStatus:
    """A row of `rules`; raises BadMessage."""
    return RuleStatus(
        rule=read_rule(row),
        by=row.optional("by", lambda name: row.text(name, limit=200)),
        at=row.optional("at", row.number),
        ignored=row.optional("ignored", lambda name: row.text(name, limit=500)),
    )
