"""The console's token of a sandbox: an operator's, made for the run."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NAME, ROLE = "sandbox", "operator"
"""Whom intents of the sandbox's console name, and what they may do."""
MAKE_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAccess:
    """Where the console is, and a token with which everything may be done there."""

    address: str
    token: str

    @property
    def link(self) -> str:
        """Logs a browser in: the part behind # is not sent to a server, and the page removes it from the address."""
        return f"{self.address}#token={self.token}"


def operator_token(folder: Path, command: Sequence[str]) -> str:
    """The token in this folder; `command`, a call of `trimtab`, makes it when there is none.

    Raises OSError, subprocess.SubprocessError.
    """
    file, config = folder / f"{ROLE}.token", folder / "console.toml"
    if not file.exists():
        arguments = ["console", "token", NAME, "--role", ROLE, "--config", str(config)]
        made = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, timeout=MAKE_LIMIT_S)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(made.stdout)
    return file.read_text(encoding="utf-8").strip()
