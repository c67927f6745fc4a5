"""Compares what the job has done with what was sent: `python -m flights.check --bootstrap HOST:PORT < SENT`.

SENT is what `flights.producer` printed at its end.  Exit code 0 if no flight was lost, none was made up, and no count
stepped back.  A worker that is killed may repeat the flights of about a second (at-least-once); these are only counted.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

from flights.backlog import Backlog
from flights.dataset import read_flights
from flights.readback import read_table, read_totals
from flights.replay import Sent
from flights.verify import count_events, flights_sent
from flights.wire import APP, DELAYS, SOURCE

TICK_S = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Wait until the job has processed everything, and compare; the last line on standard output is JSON."""
    parser = argparse.ArgumentParser(prog="python -m flights.check", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--limit", type=float, default=90.0, help="seconds to wait until everything is processed")
    given = parser.parse_args(arguments)
    sent = Sent(clocks=tuple(json.load(sys.stdin)["clocks"]))
    key_groups = len(sent.clocks)
    backlog = Backlog(given.bootstrap, APP, {SOURCE: key_groups, DELAYS: key_groups})
    deadline = time.monotonic() + given.limit
    while (left := backlog.records()) and time.monotonic() < deadline:
        time.sleep(TICK_S)
    events = count_events(flights_sent(read_flights(), sent), read_totals(given.bootstrap))
    table = read_table(given.bootstrap)
    print(json.dumps({**asdict(events), "left": left, "stepped_back": table.stepped_back}))
    return 0 if not (left or events.lost or events.foreign or table.stepped_back) else 1


if __name__ == "__main__":
    sys.exit(main())
