"""The part of the status about what tuples between workers cost, and what it would save to keep them local."""

from dataclasses import dataclass
from typing import Annotated

from trimtab_protocol.messages.codec import Most, Range, Text
from trimtab_protocol.messages.names import OperatorId

MAX_COST_S = 1e6
"""CPU seconds of one tuple, either way."""
MAX_OPERATORS = 1_000
"""Operators of one app."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCostStatus:
    """What a tuple costs more at one end because it goes to another worker, CPU seconds of a reference core.

    `value` with its standard `error`, which has `freedom` degrees of freedom; by chance it may be negative.
    `significant`: plans count with it.  `unknown` = why nothing is known.
    """

    value: Annotated[float | None, Range(-MAX_COST_S, MAX_COST_S)] = None
    error: float | None = None
    freedom: float | None = None
    significant: bool = False
    unknown: Annotated[str | None, Text(200)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCostStatus:
    """The costs of an operator, per tuple that it sends and per tuple that it receives."""

    operator: OperatorId
    sending: RemoteCostStatus
    receiving: RemoteCostStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class CollocationStatus:
    """What collocation can bring; None = unknown.

    `obtainable` = share of the tuples between key groups that could stay within a worker at most; `worth_cores` = what
    this would save besides what is saved now, by the costs that are significant.
    """

    operators: Annotated[tuple[OperatorCostStatus, ...], Most(MAX_OPERATORS)] = ()
    obtainable: Annotated[float | None, Range(0.0, 1.0)] = None
    worth_cores: float | None = None
