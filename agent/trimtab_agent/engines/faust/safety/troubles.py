"""What has gone wrong with a worker's inputs or state: told in its reports for a while, as operators read no logs."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum

from trimtab_protocol.messages.decode import printable

log = logging.getLogger(__name__)

EVERY_S = 60.0
LARGEST_S = 2.0e11
"""Beyond the year 8000: microseconds that were taken for milliseconds, for example.  Python has no such dates."""
TOLD_S = 3600.0
"""How long a trouble is told after it was last seen."""


class Trouble(StrEnum):
    """The kinds, the worst one first."""

    STANDS = "stands"
    """A key group stands still, because Kafka refuses a record of it."""
    READ_AGAIN = "read_again"
    """Inputs are processed again that tables have counted."""
    INPUTS_LOST = "inputs_lost"
    """Inputs were deleted before this worker read them."""
    STATE_LOST = "state_lost"
    """Records of a changelog were deleted that a table here has not seen."""
    OUTPUTS_LOST = "outputs_lost"
    """Kafka has refused records that the app has sent, other than those of its tables."""
    UNACKNOWLEDGED = "unacknowledged"
    """An event is not acknowledged for so long that it may never be: nothing after it is committed."""
    MAY_READ_AGAIN = "may_read_again"
    """Inputs begin at the first records that their topics have: read again, or what was before them was deleted."""
    LATE_WRITE = "late_write"
    """The app wrote a table after its key group had left."""


Tell = Callable[[Trouble, str | None], None]
"""Takes a line of at most 200 characters that begins with a letter, what matters most first; None: it is over."""


class Troubles:
    """The newest line of each kind.  Any thread may call it."""

    def __init__(self) -> None:
        self._told: dict[Trouble, tuple[str, float]] = {}

    def tell(self, trouble: Trouble, text: str | None) -> None:
        """Tell this from now on, instead of what was told of the same kind; None: tell nothing more of it."""
        if text is None:
            self._told.pop(trouble, None)
        else:
            self._told[trouble] = text, time.monotonic() + TOLD_S

    def worst(self, *among: Trouble) -> str | None:
        """The line of the worst trouble that is told now, among these or of all kinds; None: there is none."""
        now = time.monotonic()
        for trouble in Trouble:
            told = self._told.get(trouble)
            if told is not None and now < told[1] and (not among or trouble in among):
                return told[0]
        return None


class Repeated:
    """A trouble that may come often: logged and told once a minute, with its number since the start."""

    def __init__(self, trouble: Trouble, tell: Tell) -> None:
        self.count = 0
        self._trouble = trouble
        self._tell = tell
        self._told_at = -EVERY_S

    def seen(self, what: str, detail: str, count: int = 1) -> None:
        """It has come `count` times more: `what`, such as "late writes were refused"."""
        self.count += count
        if (now := time.monotonic()) >= self._told_at + EVERY_S:
            self._told_at = now
            told = printable(f"{what}, {self.count} until {minute(time.time())}: {detail}")
            log.warning("%s (logged once a minute)", told)
            self._tell(self._trouble, told[:200])


def minute(at: float) -> str:
    """A time (epoch seconds) as operators read it.  That of a record is what some client has written."""
    if not -1.0 <= at < LARGEST_S:
        return "an impossible time"
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
