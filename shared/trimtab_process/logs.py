"""Log formats, on standard error: one line per record, whatever is in it, so that nobody can write a line of others."""

import json
import logging
import sys
import time
from typing import Any

from trimtab_protocol.messages.decode import UNPRINTABLE


def fields(**values: object) -> dict[str, Any]:
    """Keyword arguments for a logging call, for example `log.info("worker connected", **fields(worker="w0"))`.

    None values are left out.
    """
    return {"extra": {"fields": {name: value for name, value in values.items() if value is not None}}}


class PlainFormatter(logging.Formatter):
    """Time, level and message, of the controller and its stream; the lines of a traceback are indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The first line."""
        return _escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """The traceback."""
        return "\n".join(f"  {_escaped(line)}" for line in super().formatException(ei).split("\n"))


class KeyValueFormatter(logging.Formatter):
    """Of the agent and the console.

    `ts=... level=info event="worker connected" worker=w0`; values with spaces or quotes are JSON
    strings.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, including its traceback."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        values: dict[str, object] = {
            "ts": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        return " ".join(f"{key}={_quote(value)}" for key, value in values.items())


def _quote(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    plain = text and text.isprintable() and not any(char in text for char in ' "=\\')
    return text if plain else _escaped(json.dumps(text, ensure_ascii=False))


def _escaped(text: str) -> str:
    """The text, with the codes of what cannot be printed."""
    return text if text.isprintable() else UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def log_to_stderr(formatter: logging.Formatter | None = None) -> None:
    """Log everything from level INFO to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter or KeyValueFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=formatter is None)
