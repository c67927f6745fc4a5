"""The reference pages say what the code says, and the code says something about everything that they list."""

import argparse
import json
from pathlib import Path

import pytest

import trimtab_reference
from trimtab_agent.configuration import read_configuration
from trimtab_models.solving import FAMILIES, Infeasible, Never, method_named
from trimtab_reference import COMMAND, PAGES, cli, configuration, files, limits, source
from trimtab_reference.markdown import table


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_up_to_date(page: str) -> None:
    stale = f"docs/reference/{page}.md is stale: run `{COMMAND}`"
    assert trimtab_reference.path_of(page).read_text(encoding="utf-8") == trimtab_reference.render(page), stale


def test_what_is_stale_is_written_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimtab_reference, "REFERENCE", tmp_path / "reference")
    assert trimtab_reference.is_stale("limits")
    assert trimtab_reference.write("limits")
    assert not trimtab_reference.write("limits")
    trimtab_reference.path_of("limits").write_text("# Limits\n\nnone\n")
    assert trimtab_reference.is_stale("limits")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_plan_has_the_keys_that_its_method_explains(name: str) -> None:
    [format_] = [each for each in files.FORMATS if name in each.methods]
    method = method_named(name)
    plan = method.solve(method.read(format_.example.read_bytes()), Never(), 0)
    assert not isinstance(plan, Infeasible)
    assert list(plan.document) == list(method.result)


def test_an_example_shows_every_key_that_its_reader_knows() -> None:
    [cluster] = [each for each in files.FORMATS if each.title == "Cluster"]
    document = json.loads(cluster.example.read_text())
    nodes = next(part for part in cluster.parts if part.title == "nodes[]")
    assert files.known_keys(cluster, document, nodes) == ["id", "capacity", "removing", "limits"]
    del document["nodes"][0]["limits"]
    with pytest.raises(source.Undocumented, match=r"nodes\[\] does not show \['limits'\]"):
        files.known_keys(cluster, document, nodes)


def test_types_ranges_and_defaults_are_the_readers() -> None:
    text = """
[agent]                # this host
cluster = "demo"       # as in controller.toml
host = "h0"            # unique
# interval_s = 3.0     # per report
state_dir = "/var/x"   # journal
socket = "/run/x.sock" # workers connect here

[kafka]                # brokers
bootstrap_servers = "127.0.0.1:9092"  # some of them
"""
    agent, kafka = configuration.sections(text, read_configuration)
    assert agent.splitlines() == [
        "### [agent]",
        "",
        "Required. This host.",
        "",
        "- `cluster` (name of letters, digits, '.', '_', '-', required): As in controller.toml.",
        "- `host` (name of letters, digits, '.', '_', '-', required): Unique.",
        "- `interval_s = 10.0` (0.1–600 s): Per report.",
        "- `state_dir` (path, required): Journal.",
        "- `socket` (path, required): Workers connect here.",
    ]
    assert "- `bootstrap_servers` (string, required): Some of them." in kafka


def test_a_comment_that_goes_on_belongs_to_the_line_above() -> None:
    titles, [key, _] = configuration.parse_sample(
        "[a]    # this\n       # and that\nx = 1  # one\n       # more\n# [b]  # other\n       # words\n# y = 2 # two\n"
    )
    assert titles == {"a": "this and that", "b": "other words"}
    assert key.text == "one more"


def test_a_usage_shows_which_options_exclude_each_other_and_choices_as_they_are_typed() -> None:
    commands = argparse.ArgumentParser(prog="x").add_subparsers()
    parser = commands.add_parser("go", epilog="x go a > b\nthen read it")
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh"), help="bash | zsh")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--for", metavar="SPAN", help="how long")
    which.add_argument("--end", action="store_true", help="end it")
    assert list(cli.of_command(parser, 3)) == [
        "### x go",
        "```\nx go SHELL (--for SPAN | --end)\n```",
        "- `SHELL`: bash | zsh.\n- `--for SPAN`: How long.\n- `--end`: End it.",
        "```\nx go a > b\n```\n\nthen read it",
    ]


def test_a_key_without_a_comment_is_named() -> None:
    with pytest.raises(source.Undocumented, match=r"agent.host has no comment in its sample file"):
        list(
            configuration.sections(
                '[agent]\ncluster = "c" # x\nhost = "h"\nstate_dir = "s" # x\nsocket = "s" # x\n'
                '[kafka]\nbootstrap_servers = "b" # x\n',
                read_configuration,
            )
        )


def test_numbers_are_computed_and_followed_into_other_modules(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "from trimtab_protocol.messages.local import MAX_FRAME_BYTES\n"
        "MAX_A, OTHER = 2 * 1024, 'text'\n"
        '"""Both\nlines."""\n'
        "MAX_B_BYTES = MAX_FRAME_BYTES // 4  # a quarter\n"
        "LIMIT_OF = frozenset({1})\n"
    )
    found = [(each.name, each.value, each.text) for each in source.numbers(module)]
    assert found == [("MAX_A", 2048, "Both lines."), ("MAX_B_BYTES", 2 * 1024 * 1024, "a quarter")]


def test_a_limit_without_a_text_is_named() -> None:
    limit = source.Constant(name="MAX_X", value=1, text="", path=trimtab_reference.ROOT / "agent" / "x.py")
    with pytest.raises(source.Undocumented, match=r"agent/x.py: MAX_X is a limit without a text"):
        limits.meaning(limit)


def test_a_cell_keeps_its_row_whatever_stands_in_it() -> None:
    assert table(("a",), [("x | y\nz <b> *c* `<d> * |`",)]).splitlines()[2] == "| x \\| y z \\<b> \\*c\\* `<d> * \\|` |"
