"""docs/reference/methods.md: what `trimtab solve` and the controller can be asked for."""

from trimtab_controller.solver.answer import Method as ControllerMethod
from trimtab_models.solving import FAMILIES, method_named
from trimtab_reference.files import FORMATS
from trimtab_reference.markdown import code, codes, table


def render() -> str:
    """The page."""
    return "\n\n".join(
        (
            "# Methods",
            "The same instance, seed and method give the same plan. With a time limit a method answers with its best "
            "plan when the time is over.",
            "## Methods of trimtab solve",
            "The formats of instances and plans are in [files](files.md).",
            table(("method", "what it does", "instance"), map(_method, FAMILIES)),
            "## Methods of the controller",
            f"`[balance] method` in controller.toml is one of {codes(ControllerMethod)}.",
        )
    )


def _method(name: str) -> tuple[str, str, str]:
    format_ = next(each for each in FORMATS if name in each.methods)
    return code(name), method_named(name).text, f"[{format_.title}](files.md#{format_.anchor})"
