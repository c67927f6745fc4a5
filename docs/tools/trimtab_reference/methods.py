"""docs/reference/methods.md: what `trimtab solve` and `trimtab simulate` can be asked for."""

from functools import partial

from trimtab_controller.solver.answer import Method as ControllerMethod
from trimtab_models.simulation.rounds import POLICIES
from trimtab_models.solving import FAMILIES, method_named
from trimtab_reference.markdown import code, codes, entries
from trimtab_reference.source import Undocumented, texts_of


def render() -> str:
    """The page."""
    return "\n\n".join(
        (
            "# Methods and policies",
            "The same instance, seed and method give the same plan. With a time limit a method answers with its best "
            "plan when the time is over.",
            "## Methods of trimtab solve",
            "[Files](files.md) has the format of the instance and the plan of each method.",
            entries((code(name), method_named(name).text) for name in FAMILIES),
            "## Methods of the controller",
            f"`[balance] method` in controller.toml is one of {codes(ControllerMethod)}.",
            "## Policies of trimtab simulate",
            f"{codes(name for name in POLICIES if name in FAMILIES)} are the methods above. In addition:",
            entries((code(name), _policy(name)) for name in POLICIES if name not in FAMILIES),
        )
    )


def _policy(name: str) -> str:
    policy = POLICIES[name]
    if isinstance(policy, partial):  # of a strategy
        (strategy,) = policy.args
        text = texts_of(type(strategy)).get(strategy.name)
    else:
        text = policy.__doc__
    if not text:
        raise Undocumented(f"trimtab_models.simulation.rounds: the policy {name} has no text")
    return text
