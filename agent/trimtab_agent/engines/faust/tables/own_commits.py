"""The offsets that this worker has committed last, kept beside its tables: whoever deletes these deletes them too.

Kafka does not know what a group's offset was before somebody has set it back.  These are at most what was committed,
for another worker may have gone on since.  So a smaller offset in Kafka was set back, wherever the topic begins.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faust.types import TP

log = logging.getLogger(__name__)


class OwnCommits:
    """The file with the offsets of one app on this disk."""

    def __init__(self, app: Any) -> None:
        self._app = app

    @property
    def _path(self) -> Path:
        return Path(self._app.conf.tabledir) / f"{self._app.conf.id}.committed.json"

    def read(self) -> dict[TP, int]:
        """What was committed last; empty without a file, or with one that cannot be read."""
        try:
            rows = json.loads(self._path.read_text(encoding="utf-8"))
            return {TP(str(topic), int(partition)): int(offset) for topic, partition, offset in rows}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as fault:
            log.warning("it is not known what this worker has committed last: %r", fault)
            return {}

    def write(self, committed: Mapping[TP, int | None]) -> None:
        """Keep these, and what is known of other partitions.  Without them only less can be told later."""
        known = {**self.read(), **{tp: offset for tp, offset in committed.items() if offset is not None}}
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps([[*tp, offset] for tp, offset in sorted(known.items())]), encoding="utf-8")
            new.replace(self._path)
        except OSError as fault:
            log.info("what this worker has committed is not kept: %r", fault)
