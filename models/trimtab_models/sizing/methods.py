"""The sizing methods of the file contract."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trimtab_models.instances.reading import BadInstance, parsed_instance
from trimtab_models.instances.sizing import SizingInstance
from trimtab_models.sizing.problem import SizingProblem, problem_of
from trimtab_models.sizing.solve import SizingResult, solve, solve_round_robin
from trimtab_models.solving import Infeasible, PlanDocument, SolveMethod, StopRule

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
        "utilisation": dict(zip(problem.machines, result.use.tolist(), strict=True)),
        "fluid_bound": result.fluid_bound,
    }


def _read(text: bytes) -> SizingProblem:
    return problem_of(parsed_instance(text, SizingInstance))


def _read_with_instances(text: bytes) -> SizingProblem:
    instance = parsed_instance(text, SizingInstance)
    for position, operator in enumerate(instance.operators):
        if operator.instances is None:
            raise BadInstance(f"$.operators[{position}].instances", "nothing", "this key")
    return problem_of(instance)


def _method(
    name: str, text: str, read: Callable[[bytes], SizingProblem], solver: Callable[..., SizingResult | Infeasible]
) -> SolveMethod:
    def planned(problem: SizingProblem, stop: StopRule, seed: int) -> PlanDocument | Infeasible:
        result = solver(problem, stop=stop, seed=seed)
        if isinstance(result, Infeasible):
            return result
        return PlanDocument(
            document=encode_sizing(problem, result, method=name), warnings=tuple(_warnings(problem, result))
        )

    return SolveMethod(read=read, solve=planned, text=text, result=SIZING_RESULT, timed=False)


def _warnings(problem: SizingProblem, result: SizingResult) -> Iterator[str]:
    if result.source_rate < problem.source_rate:
        asked, reached = f"source rate {problem.source_rate:g}", f"{result.source_rate:g} tuples/s"
        yield f"the plan sustains only {reached}, not {asked}; no placement sustains more than {result.bound:g}"


METHODS: Mapping[str, SolveMethod] = {
    "hetero": _method(
        "hetero",
        "Finds how many instances of each operator on which machines sustain the largest source rate.",
        _read,
        solve,
    ),
    "round-robin": _method(
        "round-robin",
        "Baseline: deals a given number of instances out to the machines in turn.",
        _read_with_instances,
        solve_round_robin,
    ),
}
