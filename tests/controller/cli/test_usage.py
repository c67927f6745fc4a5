"""Wrong usage, an unreachable broker, and help without extras."""

import os
from pathlib import Path

import pytest

from tests.controller.loop.inbox_records import NOWHERE
from trimtab_controller.cli import main, operator
from trimtab_controller.kafka import reader as reader_module


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["status"],
            "name the cluster: --config FILE, or TRIMTAB_CONFIG in the environment, "
            "or --bootstrap HOST:PORT and --cluster NAME",
        ),
        (["status", "--config", "absent.toml"], "absent.toml: No such file or directory"),
        (["drain", "w0", "--bootstrap", "x", "--cluster", "a b"], "controller.cluster: found 'a b', expected a name"),
        (["controller", "run", "--config", "absent.toml"], "absent.toml: No such file or directory"),
        (["move", "nonsense", "w1", *NOWHERE], "APP/OPERATOR/N: found 'nonsense', expected app/operator/partition"),
        (["move", "shop/sums/1", "w 1", *NOWHERE], "found 'w 1', expected a worker's name"),
        (["drain", "w 1", *NOWHERE], "found 'w 1', expected a worker's name"),
        (["drain", "zone:a b", *NOWHERE], "found 'a b', expected the name of a zone"),
        (["undrain", "w 1", *NOWHERE], "found 'w 1', expected a worker's name"),
        (["forget", "a b", *NOWHERE], "found 'a b', expected an app's id"),
        (["forget", "--worker", "w 1", *NOWHERE], "found 'w 1', expected a worker's name"),
        (["stop", "a b", *NOWHERE], "found 'a b', expected an app's id"),
        (["scale", "a b", "3", *NOWHERE], "found 'a b', expected an app's id"),
        (["rolling-restart", "a b", *NOWHERE], "found 'a b', expected an app's id"),
        (["rolling-restart", "a b", "--cancel", *NOWHERE], "found 'a b', expected an app's id"),
        (["maintenance", "h 1", "--for", "1h", *NOWHERE], "found 'h 1', expected a host's name"),
        (["maintenance", "h1", "--for", "90d", *NOWHERE], "expected more than 0 s, and at most 2.592e+06 s"),
        (["drain", "w1", "--config", "FILE"], "controller: missing, expected an object"),
        (["replay", "--set", "nonsense", *NOWHERE], "--set nonsense: found no SECTION.KEY=VALUE"),
        (
            ["replay", "--set", "balance.no_such_key=3", *NOWHERE],
            "--set balance.no_such_key=3: balance.no_such_key: found a whole number",
        ),
        (["solve", "milp", __file__], f"{__file__}: $: found no JSON"),
        (
            ["rule", "add", "r", "--kind", "pin", "--reason", "it waits for the broker last", *NOWHERE],
            "kind: found 'pin', expected workers beside the kind pin",
        ),
        (
            ["rule", "add", "r", "--kind", "freeze", "--reason", "y", "--key-groups", "9-3", *NOWHERE],
            "key_groups: found '9-3', expected ranges whose first key group is not above their last",
        ),
        (["pause", "--reason", "", *NOWHERE], "reason: found '0 characters', expected 1 to 2000 characters"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "controller.toml"
    empty.write_text("")
    assert main([str(empty) if each == "FILE" else each for each in arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("number", ["six", "0", "10001", "-1"])
def test_a_wrong_number_of_workers_is_exit_code_2(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["scale", "shop", number, *NOWHERE])
    assert ended.value.code == 2
    assert f"found '{number}', expected a number of workers from 1 to 10000, or 'auto'" in capsys.readouterr().err


@pytest.mark.parametrize("until", ["yesterday", "2026-13-01", "2 h"])
def test_a_wrong_end_of_a_rule_is_exit_code_2(until: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rule", "add", "r", "--kind", "freeze", "--reason", "y", "--until", until, *NOWHERE])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert f"found '{until}', expected a number with s, m, h or d behind it, or a time with its zone" in told


def test_an_unreachable_broker_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "REQUEST_LIMIT_S", 0.3)
    assert main(["status", *NOWHERE]) == 1
    assert "Kafka at 127.0.0.1:1" in capsys.readouterr().err


def test_an_operator_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1000730000")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert operator.who().startswith(f"{os.getuid()}@")
