"""Python loads this at its start where PYTHONPATH leads here: who needs a wrong clock, or a pause, needs no hook in the
product.

FAULTS_CLOCK_S shifts `time.time` by so many seconds.  FAULTS_GATE names a folder: while it holds a file `closed`, the
controller stands still, once, between a decision and its publication, and makes a file `reached`.
"""

import os
import time
from pathlib import Path
from typing import Any

STAND_STILL_S = 1.5

if shift_s := float(os.environ.get("FAULTS_CLOCK_S", "0")):
    _true_time = time.time
    time.time = lambda: _true_time() + shift_s

if gate := os.environ.get("FAULTS_GATE"):
    from trimtab_controller.kafka.publisher import Publisher

    _publish = Publisher.publish

    def _publish_late(self: Publisher, records: Any) -> None:
        closed = Path(gate, "closed")
        if closed.exists() and any(record.topic.endswith(".commands") for record in records):
            closed.unlink()
            Path(gate, "reached").touch()
            time.sleep(STAND_STILL_S)
        _publish(self, records)

    Publisher.publish = _publish_late  # type: ignore[method-assign]
