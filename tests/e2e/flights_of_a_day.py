"""A day of flights: those of several days, each at its time of day, played faster."""

import threading
import time
from collections.abc import Sequence

from flights.dataset import COLUMNS, MISSING, Flight, partition_of, read_flights
from flights.wire import SOURCE, encode_source
from tests.e2e.confirmed import Confirmed, ConfirmedProducer


def flights_of_a_day(days: int, begin: int, end: int) -> list[tuple[float, Flight]]:
    """The flights of the first days of the year that left between these minutes, each with its minute, in this order.

    They left when they really did or, if they were cancelled, when they should have.  Those of one minute are spread
    over it.  Their numbers are new: the order of this day.
    """
    rows: list[tuple[int, Flight]] = []
    for flight in read_flights():
        cells = flight.row.split(",")
        if int(cells[COLUMNS["month"]]) == 1 and int(cells[COLUMNS["day"]]) <= days:
            left = cells[COLUMNS["dep_time"]]
            hours, minutes = divmod(int(cells[COLUMNS["sched_dep_time"]] if left == MISSING else left), 100)
            if begin <= (minute := hours * 60 + minutes) < end:
                rows.append((minute, flight))
    rows.sort(key=lambda row: (row[0], row[1].sequence))
    of_minute: dict[int, list[Flight]] = {}
    for minute, flight in rows:
        of_minute.setdefault(minute, []).append(flight)
    timed = (
        (minute + place / len(found), each) for minute, found in of_minute.items() for place, each in enumerate(found)
    )
    return [
        (minute, Flight(sequence=sequence, airplane=flight.airplane, row=flight.row))
        for sequence, (minute, flight) in enumerate(timed)
    ]


class DayPlayer:
    """Sends the flights of a day from minute `begin` on, each minute in `minute_s` seconds.

    `confirmed` = how many the broker has.
    """

    def __init__(
        self, bootstrap: str, flights: Sequence[tuple[float, Flight]], *, key_groups: int, begin: int, minute_s: float
    ) -> None:
        self._flights = flights
        self._key_groups = key_groups
        self._begin, self._minute_s = begin, minute_s
        self.confirmed = 0
        self._producer = ConfirmedProducer(bootstrap, self._count)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="day", daemon=True)

    def start(self) -> None:
        """The day begins."""
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the last flight has been sent."""
        return not self._thread.is_alive()

    def close(self) -> None:
        """End, when everything that was sent is in Kafka."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._producer.close()

    def _count(self, _: Confirmed) -> None:
        self.confirmed += 1

    def _run(self) -> None:
        began = time.monotonic()
        for minute, flight in self._flights:
            while (left_s := began + (minute - self._begin) * self._minute_s - time.monotonic()) > 0.0:
                self._producer.poll()
                if self._ending.wait(min(left_s, 0.02)):
                    return
            value = encode_source(flight.sequence, flight.row).decode()
            self._producer.send(SOURCE, value, flight.airplane, partition_of(flight.airplane, self._key_groups))
        self._producer.poll()
