"""The runbooks are complete, and what they name exists: reasons, metrics, commands, log lines, links."""

import re
import shlex
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.served_metrics import metrics
from trimtab_controller.cli import all_commands, parser_for
from trimtab_controller.decider.values.reasons import ConcernKind, SkipReason
from trimtab_controller.execution.journal import Flaw
from trimtab_controller.seen import CALM
from trimtab_protocol.messages.commands import Refusal
from trimtab_reference.rules import RULES, alerts

README = ROOT / "runbooks" / "README.md"
RUNBOOKS = sorted(set(README.parent.glob("*.md")) - {README})
USAGE = ROOT / "docs" / "reference" / "cli.md"
"""Written from the parsers: shows usage, not commands to type."""
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted({*ROOT.glob("docs/**/*.md")} - {USAGE}), README, *RUNBOOKS]


def test_every_reason_and_every_alert_has_its_runbook_and_there_are_no_others() -> None:
    reasons = {*map(str, SkipReason)} - CALM
    with_alert = {alert.runbook for alert in alerts() if alert.runbook is not None}
    assert {path.stem for path in RUNBOOKS} == reasons | with_alert
    assert set(map(str, ConcernKind)) <= with_alert


def test_an_alert_has_the_name_of_its_runbook() -> None:
    for alert in alerts():
        words = (alert.runbook or "nothing_decided").split("_")
        assert alert.name == "Trimtab" + "".join(word.capitalize() for word in words)
        assert alert.severity in ("critical", "warning")


def test_reasons_that_need_nobody_are_listed_and_wake_nobody() -> None:
    """Each other reason has an alert: the one for all reasons, or one of its own."""
    assert set(re.findall(r"^\| `(\w+)` \|", README.read_text(), re.MULTILINE)) == CALM
    [for_all] = [alert.expression for alert in alerts() if alert.runbook is None]
    calm, with_own = (set(names.split("|")) for names in re.findall(r'reason!~"([^"]*)"', for_all))
    assert calm == CALM
    assert with_own <= {alert.runbook for alert in alerts()}


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_runbook_says_what_to_check_what_to_do_and_when_it_ends(path: Path) -> None:
    headings = re.findall(r"^#+ (.*)", path.read_text(), re.MULTILINE)
    assert headings[0] == path.stem
    assert [heading for heading in headings if heading in ("Check", "Do", "Ends by itself")][-1] == "Ends by itself"
    assert {"Check", "Ends by itself"} <= set(headings)


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_runbook_says_what_obeying_it_costs(path: Path) -> None:
    """Also where the alert is wrong."""
    [todo] = re.findall(r"^## Do\n(.*?)^## ", path.read_text(), re.MULTILINE | re.DOTALL)
    assert re.search(r"\bcosts?\b", todo)


def test_every_flaw_of_the_journal_and_every_refusal_of_a_command_is_explained() -> None:
    def unexplained(words: type[Flaw] | type[Refusal], name: str) -> set[str]:
        text = (README.parent / f"{name}.md").read_text()
        return {word for word in words if f"`{word}`" not in text}

    assert unexplained(Flaw, "journal") | unexplained(Refusal, "handovers_failed") == set()


def test_every_metric_that_is_named_exists_and_every_metric_is_named() -> None:
    served = metrics()
    for path in DOCUMENTS:
        named = set(re.findall(r"\btrimtab_(?:agent|controller|metrics)_[a-z_]+\b(?!\.)", path.read_text()))
        assert named <= served, path
        short = set(re.findall(r"`([a-z_]+_total)\b", path.read_text()))
        assert {name for name in short if not any(full.endswith(name) for full in served)} == set(), path
    known = README.read_text() + RULES.read_text()
    assert {name for name in served if name not in known} == set()


def written() -> str:
    """The source of agent, controller and shared packages, with adjacent string literals joined."""
    folders = (ROOT / name for name in ("agent", "controller", "shared"))
    sources = [path.read_text() for folder in folders for path in sorted(folder.rglob("*.py"))]
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))


def test_log_lines_that_are_quoted_are_written_by_the_code() -> None:
    paragraphs = [text for path in RUNBOOKS for text in re.split(r"\n(?=\n|\s*- |\|)", path.read_text())]
    spans = [span for text in paragraphs if re.search(r"\blog", text) for span in re.findall(r"`([^`]+)`", text)]
    spans = [" ".join(span.split()) for span in spans if not re.match(r"(trimtab|kafka|journalctl|systemctl)\b", span)]
    phrases = {phrase for span in spans for phrase in re.findall(r"\b[A-Za-z]+(?: [a-z']+){2,}\b(?![\w=])", span)}
    assert len(phrases) >= 15
    source = written()
    assert {phrase for phrase in phrases if phrase not in source} == set()


def words(command: str) -> list[str]:
    return shlex.split(re.sub(r"\$\([^)]*\)", "1", command))[1:]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_commands_are_as_the_command_line_wants_them(path: Path) -> None:
    text = path.read_text()
    named = [words(command) for command in re.findall(r"`(trimtab [^`\n]+)`", text)]
    lines = (re.split(r"\s[#>]\s", line)[0] for line in re.findall(r"^trimtab .*", text, re.MULTILINE))
    shown = [words(command) for line in lines for command in line.split(";")]
    for called in named + shown:
        assert called[0] in all_commands() or called[0].isupper(), called
    whole = [called for called in shown if not {"|", "METHOD"}.intersection(called)]
    for called in whole + [called for called in named if {"--config", "--cluster"}.intersection(called)]:
        parser_for(called[0]).parse_args(called)
