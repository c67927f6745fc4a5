"""The documents hang together: lists are complete, lines are short, figures are those of the code."""

import re
from pathlib import Path

import pytest

from trimtab_agent import kafka_link, plugin_server
from trimtab_agent.commands import verifier
from trimtab_agent.engines.faust.measure import apportion
from trimtab_agent.engines.faust.safety import fence
from trimtab_agent.engines.faust.settings import SteeringSettings
from trimtab_controller.decider.memory import observe
from trimtab_controller.decider.memory import standbys as standby_rounds
from trimtab_controller.decider.values.settings import Settings
from trimtab_controller.kafka import chunks
from trimtab_controller.leadership.machine import CandidateRole
from trimtab_controller.loop import inbox
from trimtab_controller.stream import assemble, pipeline
from trimtab_controller.stream.configuration import MAX_HOSTS
from trimtab_models.standbys.solve import WORTHWHILE
from trimtab_process import metrics_port, topic_identity
from trimtab_protocol.messages import report
from trimtab_protocol.messages.placement import MAX_OPERATORS, MAX_WANTED_STANDBYS
from trimtab_protocol.signing import keys

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("**/*.md")), *sorted((ROOT / "runbooks").glob("*.md"))]
OF_OUR_OWN = 9
"""Words that no reader knows from elsewhere."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_index_of_decisions_is_complete() -> None:
    records = sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))
    assert re.findall(r"\]\((0[^)]+)\)", (DOCS / "decisions" / "README.md").read_text()) == records
    for record in records:
        text = (DOCS / "decisions" / record).read_text()
        assert text.startswith(f"# {int(record[:4])}. "), record
        assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], record


def test_each_word_of_our_own_has_a_formula_or_an_example() -> None:
    own, of_the_field = (DOCS / "concepts" / "glossary.md").read_text().split("\n## Terms of the field")
    words = own.split("\n## ")[1:]
    assert len(words) <= OF_OUR_OWN
    assert [word.splitlines()[0] for word in words if "```" not in word and "*Example:*" not in word] == []
    assert "| worker |" in of_the_field


@pytest.mark.parametrize("path", [*DOCUMENTS, *sorted((ROOT / "tests").glob("**/*.md"))], ids=name)
def test_lines_are_short(path: Path) -> None:
    """But for tables, headings and what stands in code fences."""
    prose = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > 120 and not line.startswith(("|", "#"))] == []


STEERING, DEFAULTS = SteeringSettings(), Settings()
PAGES = {
    "failure-model": (
        f"| all workers → agent | {plugin_server.MAX_CONNECTIONS:,} connections, {plugin_server.ARRIVALS_PER_S} new",
        f"{metrics_port.MAX_CONNECTIONS} connections, {metrics_port.CONNECTION_LIMIT_S:g} s each",
        f"| {pipeline.MAX_REPORTS_S} reports and {pipeline.MAX_BYTES_S >> 20} MiB per second",
        f"| {inbox.ACKS_PER_S} per second, {inbox.ACKS_AT_ONCE:,} at once",
        f"| {report.MAX_APPS} apps, {2 * report.MAX_WORKERS:,} workers, {2 * report.MAX_KEY_GROUPS:,} key groups and "
        f"{2 * report.MAX_PAIRS:,} pairs per window |",
        f"| `expected_hosts` | {MAX_HOSTS:,} |",
        f"; {MAX_OPERATORS:,} operators |",
        f"| intents | {inbox.MAX_INTENTS:,} |",
        f"one notice to the controller per reason and {verifier.NOTICE_EVERY_S:g} s",
        f"1 GiB, and {chunks.MAX_EXPANSION} times",
        f"have waited for {kafka_link.DELIVERY_LIMIT_S:g} s",
        f"notice within {topic_identity.COMPARE_EVERY_S:g} s",
        f"asks for a rebalance after {STEERING.took_limit_s:g} s; the placement decides",
        f"{observe.LOST_HOSTS_SHARE:.0%}".replace("%", " % of the hosts lost"),
    ),
    "concepts/how-it-measures": (
        f"{apportion.MESSAGE_S * 1e6:g} µs each",
        f"{apportion.BYTES_PER_MESSAGE >> 10} KiB weigh as much",
        f"at least {assemble.SEEN_SHARE:.0%}".replace("%", " % of it"),
    ),
    "concepts/how-it-plans": (
        f"{MAX_WANTED_STANDBYS} at most",
        f"{standby_rounds.ROUND.worker_changes:g} key groups or {int(standby_rounds.ROUND.worker_bytes) >> 30} GiB",
        f"at least {standby_rounds.ROUND_INTERVAL_S:g} s apart",
        f"at least {standby_rounds.TOLERANCE_PCT:g} points above its bound, and at least "
        f"{WORTHWHILE * standby_rounds.TOLERANCE_PCT:g} can be gained",
        f"an app {standby_rounds.ROUND.changes:,} key groups",
    ),
    "concepts/how-it-moves": (
        f"at most {STEERING.prepared_lag_records} records behind",
        f"within {STEERING.took_limit_s:g} s",
    ),
    "concepts/how-it-survives": (
        f"by force after {fence.END_LIMIT_S:g} s",
        *(
            f" {role}: "
            for role in CandidateRole
            if role in (CandidateRole.JOINING, CandidateRole.WAITING, CandidateRole.LEADING, CandidateRole.SUSPENDED)
        ),
    ),
    "guides/secure-it": (f"({keys.MAX_TRUST_FILE:,} characters)",),
    "guides/steer-your-own-app": (
        f"({DEFAULTS.load_distance:g} pp)",
        f"({DEFAULTS.max_migrations})",
        f"({DEFAULTS.min_interval_s:g} s)",
        f"({DEFAULTS.smoothing:g})",
        f"({DEFAULTS.drain_load_distance:g} pp)",
    ),
}
"""What pages state in passing, as the code has it."""


@pytest.mark.parametrize("page", PAGES)
def test_figures_in_passing_are_those_of_the_code(page: str) -> None:
    text = " ".join((DOCS / f"{page}.md").read_text().split())
    assert [figure for figure in PAGES[page] if figure not in text] == []
