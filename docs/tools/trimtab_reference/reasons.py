"""docs/reference/reasons.md: why nothing is done, and what is wrong, each with its meaning and its runbook."""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from trimtab_controller.decider.values.reasons import ConcernKind, SkipReason
from trimtab_reference import ROOT
from trimtab_reference.markdown import code, codes, entries, first_paragraph, link, table
from trimtab_reference.rules import RULES, Alert, alerts
from trimtab_reference.source import Undocumented

RUNBOOKS = ROOT / "runbooks"
README = RUNBOOKS / "README.md"
MONITOR = ROOT / "docs" / "guides" / "monitor.md"


def render() -> str:
    """The page."""
    calm, told = quiet_reasons(), {alert.runbook: alert for alert in alerts()}
    reasons = [str(reason) for reason in SkipReason]
    concerns = [str(kind) for kind in ConcernKind]
    waiting = [reason for reason in reasons if reason not in calm]
    others = [name for name in told if name and name not in waiting and name not in concerns]
    return "\n\n".join(
        (
            "# Reasons, concerns and alerts",
            "`trimtab status` shows the present ones and names the runbook. The label `reason` of "
            "`trimtab_controller_decisions_total` and the label `kind` of `trimtab_controller_concern` have "
            "these names.",
            "## Reasons to do nothing that need nobody",
            f"{codes(name for name in reasons if name in calm)}: "
            f"{link('runbooks', README)} has a table of when each ends.",
            "## Reasons to do nothing, with a runbook",
            "The job goes on with its last placement; only balancing waits.",
            entries(map(_with_runbook, waiting)),
            "## Concerns",
            "Something is wrong with an app, whether or not it is balanced meanwhile. The reasons "
            f"{codes(name for name in concerns if name in waiting)} are concerns too.",
            entries(_with_runbook(name) for name in concerns if name not in waiting),
            "## Further conditions with an alert",
            entries(map(_with_runbook, others)),
            "## Alerts",
            f"The rules for Prometheus are in {link('trimtab.rules.yml', RULES)}; "
            f"{link('monitor', MONITOR)} says how to load them. An alert has the name of its runbook: "
            f"`TrimtabNoLeader` has {_with_runbook('no_leader')[0]}. That of `TrimtabNothingDecided` is in its label "
            "`reason`.",
            table(("severity", "after", "alerts"), _alerts()),
        )
    )


def _alerts() -> Iterator[tuple[str, str, str]]:
    """The alerts of each severity that wait equally long."""
    for key, same in groupby(sorted(alerts(), key=_urgency), _urgency):
        yield key[0], key[1] or "at once", codes(alert.name for alert in same)


def _urgency(alert: Alert) -> tuple[str, str]:
    return alert.severity, alert.lasts


def _with_runbook(name: str) -> tuple[str, str]:
    path = RUNBOOKS / f"{name}.md"
    return link(code(name), path), meaning(path)


def meaning(path: Path) -> str:
    """The first sentence below the title of a runbook."""
    if not path.exists():
        raise Undocumented(f"{path.relative_to(ROOT)}: missing; every reason, concern and alert has a runbook")
    return re.split(r"(?<=\.) ", first_paragraph(path.read_text(encoding="utf-8").split("\n", 1)[1]), maxsplit=1)[0]


def quiet_reasons() -> dict[str, str]:
    """Reason -> when it ends, of those that `runbooks/README.md` lists as needing nobody."""
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", README.read_text(encoding="utf-8"), re.MULTILINE))
