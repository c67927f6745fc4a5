"""console.toml: what is refused, and with which words."""

from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from trimtab_console.configuration import LISTEN, load
from trimtab_controller.cli import main

KAFKA = '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'


def write(folder: Path, console: str) -> Path:
    path = folder / "console.toml"
    path.write_text(f"[console]\n{console}\n{KAFKA}")
    return path


def test_the_sample_is_accepted_as_it_stands() -> None:
    found = load(ROOT / "deploy" / "samples" / "console.toml")
    assert (found.cluster, found.listen, found.hosts, found.trust_file) == ("demo", LISTEN, (), None)


@pytest.mark.parametrize(
    ("console", "told"),
    [
        ('cluster = "a"\naddress = "0.0.0.0"', "console.address: found '0.0.0.0', expected 127.0.0.1 or ::1"),
        ('cluster = "a"\naddress = "example.com"', "console.address: found 'example.com', expected an IP address"),
        ('cluster = "a"\naddress = "0.0.0.0"\n[access]\ntokens = "t"', "any other address needs [tls] and [access]"),
        ('cluster = "a"\n[access]', "access.tokens: missing"),
        ('cluster = "a"\n[access]\ntokens = "/nowhere/t"', "/nowhere/t: No such file or directory"),
        ('cluster = "a"\n[tls]\ncertificate = "c"', "tls.key: missing"),
        ('cluster = "a"\n[tls]\ncertificate = "c"\nkey = "/nowhere/k"', "/nowhere/k: No such file or directory"),
        ('cluster = "a"\nport = 0', "console.port: found 0, expected"),
        ('cluster = "a"\nhosts = ["a:80"]', "console.hosts[0]: found 'a:80', expected the name of a host"),
        ('cluster = "a"\ntokens = 1', "console.tokens: found a whole number"),
        ("", "console.cluster: missing"),
    ],
)
def test_what_cannot_be_used_is_refused_with_exit_code_2(
    console: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, console)
    assert main(["console", "--config", str(path)]) == 2
    assert told in capsys.readouterr().err


def test_ipv6_and_further_names(tmp_path: Path) -> None:
    found: Any = load(write(tmp_path, 'cluster = "a"\naddress = "::1"\nport = 80\nhosts = ["OPS.example.com"]'))
    assert (found.listen.address, found.listen.port, found.hosts) == ("::1", 80, ("ops.example.com",))
