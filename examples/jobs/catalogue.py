"""The jobs, with what the papers report of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs import delays, edits, rain, views
from jobs.feed import Input
from jobs.oracle import later

Tables = Mapping[str, Mapping[str, list[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """What a paper reports, as text for the table; empty = nothing."""

    collocation: str = ""
    load_distance: str = ""
    load_index: str = ""
    migrations: str = ""
    latency: str = ""
    cpu: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job.  `module` has its Faust app; `topics` are its inputs and what operators send each other.

    `rate` = records per second, few enough for one machine; `budget` = share of the key groups that move in a round at
    most, as in the paper, or more where it has no such limit; `inputs` (partitions) = its records in order; `expected`
    (records sent) = its tables at the end.
    """

    name: str
    title: str
    module: str
    operators: int
    rate: float = 250.0
    budget: float = 0.05
    topics: tuple[str, ...]
    tables: tuple[str, ...]
    inputs: Callable[[int], Iterator[Input]]
    expected: Callable[[Sequence[Input]], Tables]
    paper: Paper
    together: Callable[[list[Any], list[Any]], list[Any]] = later
    """The value of a key from those of two partitions, where keys have two."""

    def changelog(self, table: str) -> str:
        """The topic of a table's changes."""
        return f"{self.name}-{table}-changelog"


JOBS = {
    job.name: job
    for job in (
        Job(
            name="job2",
            title="delays by airplane",
            module="jobs.real_job_2",
            operators=2,
            topics=(delays.FLIGHTS, delays.DELAYS),
            tables=(delays.AIRPLANES,),
            inputs=delays.inputs,
            expected=delays.job_2,
            paper=Paper(collocation="0 % to all", load_index="halved", migrations="10 of 200 key groups a round"),
        ),
        Job(
            name="job3",
            title="delays by airplane and by route",
            module="jobs.real_job_3",
            operators=3,
            rate=150.0,
            topics=(delays.FLIGHTS, delays.DELAYS, delays.LEGS),
            tables=(delays.AIRPLANES, delays.ROUTES),
            inputs=delays.inputs,
            expected=delays.job_3,
            paper=Paper(collocation="half of job 2", migrations="10 a round"),
        ),
        Job(
            name="job1",
            title="most edited articles (generated edits)",
            module="jobs.real_job_1",
            operators=3,
            rate=150.0,
            topics=(edits.EDITS, edits.PLACED, edits.TOPPED),
            tables=(edits.CELLS, edits.ARTICLES),
            inputs=edits.inputs,
            expected=edits.job_1,
            paper=Paper(collocation="at most about 5 %", load_index="no difference seen"),
        ),
        Job(
            name="job1-two-choices",
            title="most edited articles, two choices per key (generated edits)",
            module="jobs.real_job_1_two_choices",
            operators=4,
            rate=150.0,
            topics=(edits.EDITS, edits.PLACED, edits.TOPPED, edits.PARTS),
            tables=(edits.CELLS, edits.ARTICLES),
            inputs=edits.inputs,
            expected=edits.job_1,
            paper=Paper(),
            together=edits.together,
        ),
        Job(
            name="job4",
            title="delays by route and rain",
            module="jobs.real_job_4",
            operators=7,
            rate=80.0,
            topics=(delays.FLIGHTS, rain.WEATHER, delays.DELAYS, delays.LEGS, rain.HOURS_IN, rain.EFFECTS, rain.STORED),
            tables=(delays.AIRPLANES, delays.ROUTES, rain.HOURS, rain.EFFICIENCY, rain.STORE),
            inputs=rain.inputs,
            expected=rain.job_4,
            paper=Paper(collocation="to about 61 %"),
        ),
        Job(
            name="views",
            title="simple page view count (generated clicks)",
            module="jobs.page_views",
            operators=4,
            rate=100.0,
            budget=0.1,
            topics=(views.CLICKS, views.LOOKED, views.VIEWS, views.COUNTED),
            tables=(views.COUNTS,),
            inputs=views.inputs,
            expected=views.simple,
            paper=Paper(latency="14.57 to 12.18 ms (mean)", cpu="38.94 to 25.56 s (0.66)"),
        ),
        Job(
            name="unique",
            title="unique page view count (generated clicks)",
            module="jobs.unique_page_views",
            operators=4,
            rate=100.0,
            budget=0.1,
            topics=(views.CLICKS, views.LOOKED, views.VIEWS, views.COUNTED),
            tables=(views.VISITORS,),
            inputs=views.inputs,
            expected=views.unique,
            paper=Paper(latency="11.59 to 10.33 ms (mean)", cpu="32.62 to 23.97 s (0.73)"),
        ),
    )
}
