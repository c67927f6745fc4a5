"""Log format of the agent and the console: one key=value line per record, on standard error."""

import json
import logging
import sys
import time
from typing import Any


def fields(**values: object) -> dict[str, Any]:
    """Keyword arguments for a logging call, for example `log.info("worker connected", **fields(worker="w0"))`.

    None values are left out.
    """
    return {"extra": {"fields": {name: value for name, value in values.items() if value is not None}}}


class KeyValueFormatter(logging.Formatter):
    """`ts=... level=info event="worker connected" worker=w0`; values with spaces or quotes are JSON strings."""

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
    return text if plain else json.dumps(text, ensure_ascii=False)


def log_to_stderr() -> None:
    """Log everything from level INFO to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
