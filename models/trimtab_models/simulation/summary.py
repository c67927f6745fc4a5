"""Summary figures of a run."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from trimtab_models.simulation.run import Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Percentiles over rounds."""

    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: list[float]) -> Self:
        """The percentiles of at least one value."""
        p50, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
        return cls(p50=p50, p95=p95, p99=p99, max=max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Load distances (pp) before and after the moves, over all rounds; collocation and load index of the last one."""

    before: Spread
    after: Spread
    collocation: float
    load_index: float
    migrations: int
    most_migrations: int  # in one round
    cost_bytes: float


def summarise(rounds: tuple[Round, ...]) -> Summary:
    """The summary of at least one round."""
    return Summary(
        before=Spread.of([each.load_distance_before for each in rounds]),
        after=Spread.of([each.load_distance for each in rounds]),
        collocation=rounds[-1].collocation,
        load_index=rounds[-1].load_index,
        migrations=sum(each.migrations for each in rounds),
        most_migrations=max(each.migrations for each in rounds),
        cost_bytes=sum(each.cost_bytes for each in rounds),
    )
