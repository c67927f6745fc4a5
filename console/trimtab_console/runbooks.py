"""The runbooks that come with Trimtab."""

from trimtab_process.shipped import shipped
from trimtab_protocol.messages.decode import NAME_PATTERN


def read_runbook(name: str) -> str | None:
    """The Markdown of a runbook; None if there is no such runbook."""
    path = shipped("runbooks") / f"{name}.md"
    if not NAME_PATTERN.fullmatch(name) or not path.is_file():
        return None
    return path.read_text(encoding="utf-8")
