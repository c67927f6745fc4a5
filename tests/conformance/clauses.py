"""The clauses of the contract that are tested, in the order in which they are played."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.conformance import failures, moving, reporting, steering
from tests.conformance.bench import Bench


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One thing that a plug-in must do; the check's docstring says what."""

    name: str
    check: Callable[[Bench], Awaitable[None]]

    @property
    def text(self) -> str:
        return " ".join((self.check.__doc__ or "").split())


CLAUSES: tuple[Clause, ...] = (
    Clause(name="hello", check=reporting.hello),
    Clause(name="first-placement", check=steering.first_placement),
    Clause(name="placement-in-parts", check=steering.placement_in_parts),
    Clause(name="statistics", check=reporting.statistics),
    Clause(name="load", check=reporting.load),
    Clause(name="bad-frames", check=reporting.bad_frames),
    Clause(name="refused-commands", check=steering.refused_commands),
    Clause(name="refused-records", check=steering.refused_records),
    Clause(name="prepare-and-abandon", check=moving.prepare_and_abandon),
    Clause(name="hand-over", check=moving.hand_over),
    Clause(name="not-taken", check=moving.not_taken),
    Clause(name="agent-restart", check=reporting.agent_restart),
    Clause(name="rejoin", check=steering.rejoin),
    Clause(name="self-fence", check=failures.self_fence),
    Clause(name="stop", check=failures.stop),
    Clause(name="no-bad-frame", check=reporting.no_bad_frame),
)
