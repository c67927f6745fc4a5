"""Address, token and CA: from arguments, files and the environment."""

from pathlib import Path

import pytest

from trimtab_client import Access, BadAccess, access_from, token_in


@pytest.mark.parametrize(
    "address", ["https://console.example", "https://console.example:8750/", "http://127.0.0.1:8750", "http://[::1]:1"]
)
def test_a_token_goes_by_tls_or_stays_on_this_machine(address: str) -> None:
    assert "secret" not in repr(Access(address=address, token="secret"))


@pytest.mark.parametrize(
    ("address", "token", "told"),
    [
        ("http://console.example:8750", "secret", "a token is sent by https only"),
        ("http://localhost.example", "secret", "a token is sent by https only"),
        ("console.example:8750", None, "expected one like https://console.example:8750"),
        ("ftp://console.example", None, "expected one like"),
        ("https://", None, "expected one like"),
        ("https://console.example:x", None, "address: found"),
        ("https://console.example/?q", None, "expected one like"),
        ("https://ann:hunter2@console.example", None, "expected one like"),
        ("https://console.example", "", "token: found 0 characters"),
        ("https://console.example", "a\r\nb: c", "token: found 7 characters"),
        ("https://console.example", "ä", "expected 1 to 4000 printable ASCII characters"),
    ],
)
def test_what_cannot_be_used_is_said_without_its_secrets(address: str, token: str | None, told: str) -> None:
    with pytest.raises(BadAccess) as refused:
        Access(address=address, token=token)
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_token_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(BadAccess, match=r"token: No such file"):
        token_in(path)
    path.write_text("trimtab_x\n")
    path.chmod(0o640)
    with pytest.raises(BadAccess, match="found mode 0640, expected 0600"):
        token_in(path)
    path.chmod(0o600)
    assert token_in(path) == "trimtab_x"
    path.write_bytes(b"\xff")
    with pytest.raises(BadAccess, match="not text"):
        token_in(path)


def test_the_environment_names_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("from file")
    path.chmod(0o600)
    console = {"TRIMTAB_CONSOLE": "https://console.example", "TRIMTAB_CONSOLE_CA": "/ca.pem"}
    expected = Access(address="https://console.example", ca=Path("/ca.pem"))
    assert access_from(console) == expected
    assert access_from({**console, "TRIMTAB_CONSOLE_TOKEN": "t", "TRIMTAB_CONSOLE_TOKEN_FILE": ""}).token == "t"
    assert access_from({**console, "TRIMTAB_CONSOLE_TOKEN_FILE": str(path)}).token == "from file"
    with pytest.raises(BadAccess, match="TRIMTAB_CONSOLE: found nothing"):
        access_from({})
    with pytest.raises(BadAccess, match="expected one of them"):
        access_from({**console, "TRIMTAB_CONSOLE_TOKEN": "t", "TRIMTAB_CONSOLE_TOKEN_FILE": "f"})
