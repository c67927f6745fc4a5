"""What the source text says about names: a docstring below an assignment, or a comment behind it."""

import ast
import inspect
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path

from trimtab_reference import ROOT

SOURCES = tuple(ROOT / name for name in ("shared", "models", "agent", "controller", "sandbox"))
OPERATIONS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}


class Undocumented(Exception):
    """The code says nothing about something that a page lists; the message names the place where the text belongs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A number that a module names; `text` is what the source says about it, empty when it says nothing."""

    name: str
    value: float
    text: str
    path: Path


@cache
def _module(path: Path) -> tuple[ast.Module, list[str]]:
    text = path.read_text(encoding="utf-8")
    return ast.parse(text), text.splitlines()


def numbers(path: Path) -> list[Constant]:
    """The upper-case numbers of a module, in their order. Nothing is imported."""
    tree, _ = _module(path)
    texts = texts_in(path, tree)
    found = []
    for node in tree.body:
        for name, value in _assigned(node):
            if name.isupper() and (number := _evaluate(value, path)) is not None:
                found.append(Constant(name=name, value=number, text=texts.get(name, ""), path=path))
    return found


def texts_of(cls: type) -> dict[str, str]:
    """What the source of a class and of those that it extends says about its members, by name."""
    found: dict[str, str] = {}
    for path, node in _classes(cls):
        found |= texts_in(path, node)
    return found


def _classes(cls: type) -> Iterator[tuple[Path, ast.ClassDef]]:
    """The sources of the dataclasses that a class extends, and its own last; of an enum only its own."""
    for each in reversed(cls.__mro__):
        if each is cls or is_dataclass(each):
            path = Path(inspect.getfile(each))
            yield path, _class(path, each.__name__)


def _class(path: Path, name: str) -> ast.ClassDef:
    return next(each for each in _module(path)[0].body if isinstance(each, ast.ClassDef) and each.name == name)


def texts_in(path: Path, scope: ast.Module | ast.ClassDef) -> dict[str, str]:
    """Name -> the docstring below its assignment, or the comment behind it."""
    lines = _module(path)[1]
    found = {}
    for node, following in zip(scope.body, [*scope.body[1:], None], strict=True):
        text = _docstring(following) or _comment(lines[(node.end_lineno or 1) - 1])
        for name, _ in _assigned(node):
            if text:
                found[name] = " ".join(text.split())
    return found


def _assigned(node: ast.stmt) -> list[tuple[str, ast.expr | None]]:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return [(name, value)]
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return [(name, value)]
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pairs = zip(targets, values, strict=True)
            return [(target.id, value) for target, value in pairs if isinstance(target, ast.Name)]
        case _:
            return []


def _docstring(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
        case _:
            return ""


def _comment(line: str) -> str:
    found = re.search(r"[\w\"')\]]\s+# (?!noqa|type:)(.*)$", line)
    return found[1] if found else ""


def _evaluate(node: ast.expr | None, path: Path) -> float | None:
    match node:
        case ast.Constant(value=int(value) | float(value)) if not isinstance(value, bool):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATIONS:
            values = _evaluate(left, path), _evaluate(right, path)
            return None if values[0] is None or values[1] is None else OPERATIONS[type(op)](values[0], values[1])
        case ast.Name(id=name):
            return _look_up(name, path)
        case _:
            return None


def _look_up(name: str, path: Path) -> float | None:
    """The number that a module gives a name, or takes from another module of ours."""
    for node in _module(path)[0].body:
        for assigned, value in _assigned(node):
            if assigned == name:
                return _evaluate(value, path)
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            origin = file_of(node.module or "")
            return None if origin is None else _look_up(name, origin)
    return None


def file_of(module: str) -> Path | None:
    """The file of one of our modules, or None."""
    for root in SOURCES:
        place = root.joinpath(*module.split("."))
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.exists():
                return path
    return None
