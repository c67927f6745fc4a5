"""The certificate of the console: what is refused before it listens, and that browsers reach it."""

import ssl
import urllib.request
from pathlib import Path

import pytest
import uvicorn

from tests.console.fleet import Fleet, source_of, watching
from tests.console.setup import certificate as make
from tests.console.setup import running
from trimtab_console.command import check_tls, settings_of
from trimtab_console.configuration import BadConsoleConfiguration, ConsoleTls, load
from trimtab_sandbox.broker import free_ports


def told(files: ConsoleTls) -> str:
    with pytest.raises(BadConsoleConfiguration) as refused:
        check_tls(files)
    return str(refused.value)


def test_files_that_cannot_be_used_are_refused_before_it_listens(tmp_path: Path) -> None:
    one, other = make(tmp_path, "one"), make(tmp_path, "other")
    check_tls(one)
    assert "expected a certificate and its key" in told(ConsoleTls(certificate=one.certificate, key=other.key))
    assert "expected a certificate and its key" in told(ConsoleTls(certificate=one.key, key=one.key))
    assert "not encrypted" in told(make(tmp_path, "sealed", password=b"secret"))
    assert (
        told(ConsoleTls(certificate=tmp_path / "none", key=one.key))
        == f"{tmp_path / 'none'}: No such file or directory"
    )
    one.key.chmod(0o640)
    assert told(one) == f"{one.key}: found mode 0640, expected 0600: others can use it"


def test_browsers_reach_it_by_tls(tmp_path: Path) -> None:
    files, (port,) = make(tmp_path, "one"), free_ports(1)
    path = tmp_path / "console.toml"
    path.write_text(
        f'[console]\ncluster = "prod"\naddress = "0.0.0.0"\nport = {port}\nhosts = ["localhost"]\n'
        f'[access]\ntokens = "{tmp_path}/tokens.toml"\n'
        f'[tls]\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n'
        '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
    )
    configuration = load(path)
    assert configuration.address == f"https://0.0.0.0:{port}/"
    server = uvicorn.Server(settings_of(configuration, source_of(watching(Fleet()))))
    with running(server):
        context = ssl.create_default_context(cafile=str(files.certificate))
        with urllib.request.urlopen(f"https://localhost:{port}/api/v1/cluster", context=context, timeout=10) as answer:
            assert answer.status == 200
