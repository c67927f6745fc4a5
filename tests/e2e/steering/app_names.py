"""What the oracle's app and its judge share."""

import time
from enum import StrEnum
from pathlib import Path

WINDOW_S = 10.0
BATCH_S = 25.0
"""How long a batch is gathered: longer than a release or a rebalance waits for events."""
BUCKETS_PER_S = 200
"""Resolution of the times at which events were processed: 5 ms."""

BREACHES = "breaches"
"""While a file of this name is there, a worker that ends because a table would become wrong counts as killed."""
SLOW_RECOVERY = "slow-recovery"
"""While a file of this name is there, Faust's own restores are as slow as the link, too."""

HOLD = "hold"
MAY_NOT_TELL = "may-not-tell"
"""While a file of this name is there, the second agent acknowledges what it has only every so many seconds."""


REJOIN = "rejoin"
"""A worker that finds a file of its name with this suffix joins its group again."""
CARELESS = "careless"
"""A file that says at which numbers a careless agent writes what: a key that is None, or a large value."""


class Feature(StrEnum):
    """How a version of the job differs from the first one."""

    ORDERS = "orders"  # one more topic, agent and table in an operator that is there; the agent writes an old table too
    STATELESS = "stateless"  # one more topic and agent, an operator of its own without a table
    TABLE_RENAMED = "table renamed"
    OTHER_NAMES = "operators renamed"
    ONE_OPERATOR = "operators merged"
    UNNAMED = "operators not named"
    STOCK = "without the plug-in"
    PREVIOUS_PLUG_IN = "with the previous version of the plug-in"
    NO_STANDBYS = "asks for no standbys"
    OTHER_APP = "another app id"
    CARELESS = "an agent that writes late, and what Kafka does not take"
    BALLAST = "one more table"  # which the job only keeps; the scenario fills it
    LOCAL = "events between its agents skip the broker where they can"
    WITHOUT_KEYS = "these have no keys"
    BY_HAND = "the second agent acknowledges by hand"
    FAILS = "and fails now and then"
    BEHIND = "one more agent, which is far behind the others of its topic"
    RECORDS = "one more table, of records"
    NEW_FIELD = "with a field that records had not before"
    BATCHES = "the stateless agent takes batches"
    NO_CYTHON = "without Faust's compiled streams"  # the plug-in only reports: the others acknowledge what they skip
    IN_MEMORY = "tables in memory"  # the plug-in cannot steer that, and only reports


APP = "oracle"
OTHER_APP = f"{APP}-2"


def named_for(app: str, topic: str) -> str:
    """The topic that an app has for this one of the first app's: what it writes is its own."""
    return topic if app == APP else f"{app}-{topic.removeprefix(f'{APP}-')}"


def note_fault(folder: Path) -> None:
    """A worker is about to die or to be stopped."""
    with (folder / "faults").open("a") as log:
        log.write(f"{time.time()}\n")


def faults(folder: Path) -> list[float]:
    """When workers died or were stopped, epoch seconds."""
    log = folder / "faults"
    return [float(line) for line in log.read_text().split()] if log.exists() else []
