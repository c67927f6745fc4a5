"""The sizing methods of the file contract."""

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab_models.instances.reading import BadInstance
from trimtab_models.instances.sizing import parse_sizing
from trimtab_models.sizing.problem import SizingProblem, problem_of
from trimtab_models.sizing.solve import SizingResult, solve, solve_round_robin
from trimtab_models.solving import Infeasible, PlanDocument, SolveMethod, StopRule

HETERO, ROUND_ROBIN = "hetero", "round-robin"
SIZING_RESULT = {
    "method": "The method that made the plan.",
    "source_rate": "The largest rate of every source that the plan sustains (tuples per second).",
    "throughput": "Sum of the input rates of all operators at that rate; a source's is its rate.",
    "instances": "Operator to its number of instances.",
    "assignment": "Instance, as `operator#number`, to its machine.",
    "utilisation": "Machine to the percent of it that is used at that rate.",
    "fluid_bound": "No placement sustains a larger source rate, even with fractions of instances.",
}
"""Key of a plan -> what it says."""


def encode_sizing(problem: SizingProblem, result: SizingResult, *, method: str) -> dict[str, Any]:
    """The result document of the file contract; `source_rate` = largest rate that the plan sustains."""
    counts = result.placement.sum(axis=1).tolist()
    names = [f"{id_}#{number}" for id_, count in zip(problem.operators, counts, strict=True) for number in range(count)]
    return {
        "method": method,
        "source_rate": result.source_rate,
        "throughput": result.throughput,
        "instances": dict(zip(problem.operators, counts, strict=True)),
        "assignment": {name: problem.machines[machine] for name, machine in zip(names, result.assignment, strict=True)},
        "utilisation": dict(zip(problem.machines, result.use[0].tolist(), strict=True)),
        "fluid_bound": result.fluid_bound,
    }


def _read(text: bytes) -> SizingProblem:
    return problem_of(parse_sizing(text))


def _read_with_instances(text: bytes) -> SizingProblem:
    instance = parse_sizing(text)
    for position, operator in enumerate(instance.operators):
        if operator.instances is None:
            raise BadInstance(f"$.operators[{position}].instances", "nothing", "this key")
    return problem_of(instance)


def _hetero(problem: SizingProblem, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
    result = solve(problem, stop=stop, seed=seed)
    if isinstance(result, Infeasible):
        return result
    return PlanDocument(
        document=encode_sizing(problem, result, method=HETERO), warnings=tuple(_warnings(problem, result))
    )


def _round_robin(problem: SizingProblem, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
    result = solve_round_robin(problem, stop=stop, seed=seed)
    if isinstance(result, Infeasible):
        return result
    return PlanDocument(
        document=encode_sizing(problem, result, method=ROUND_ROBIN), warnings=tuple(_warnings(problem, result))
    )


def _warnings(problem: SizingProblem, result: SizingResult) -> Iterator[str]:
    if result.source_rate < problem.source_rate:
        asked, reached = f"source rate {problem.source_rate:g}", f"{result.source_rate:g} tuples/s"
        yield f"the plan sustains only {reached}, not {asked}; no placement sustains more than {result.bound:g}"


METHODS: Mapping[str, SolveMethod] = {
    HETERO: SolveMethod(
        read=_read,
        solve=_hetero,
        text="Finds how many instances of each operator on which machines sustain the largest source rate.",
        result=SIZING_RESULT,
        timed=False,
    ),
    ROUND_ROBIN: SolveMethod(
        read=_read_with_instances,
        solve=_round_robin,
        text="Baseline: deals a given number of instances out to the machines in turn.",
        result=SIZING_RESULT,
        timed=False,
    ),
}
