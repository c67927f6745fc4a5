"""docs/reference/cli.md: commands, options and exit codes, from the parsers themselves."""

import argparse
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

import trimtab_agent.cli
import trimtab_controller.cli
from trimtab_reference.markdown import code, codes, entries, plain
from trimtab_reference.source import Undocumented

OPTIONS = frozenset({"--config", "--bootstrap", "--cluster", "--json"})
"""What nearly all commands of operators take."""
MANY = 2
"""Commands that have an argument in common before it is explained once for all."""
MUCH = 15
"""Arguments of a command, above which they are left to its help."""


def render() -> str:
    """The page."""
    commands = {
        name: _children(trimtab_controller.cli.parser_for(name))[name] for name in trimtab_controller.cli.all_commands()
    }
    common = _common(commands.values())
    parts = [
        "# Command line",
        "`trimtab` is the operator's command, `trimtab-agent` the daemon on each worker host. Both take `--version`, "
        "and `--help` after every command.",
        "## trimtab",
        _exit_codes(trimtab_controller.cli.parser_for(None)),
        entries(
            (_listed(name, parser, common), text)
            for (name, (_, text)), parser in zip(
                trimtab_controller.cli.all_commands().items(), commands.values(), strict=True
            )
        ),
        "These arguments mean the same wherever nothing else is said. `[OPTIONS]` stands for "
        "`[--config FILE] [--bootstrap HOST:PORT] [--cluster NAME] [--json]`.",
        entries(common),
    ]
    for parser in commands.values():
        parser.description = None  # stands in the list above
        if not _is_short(parser, common):
            parts += of_command(parser, level=3, common=common)
    agent = trimtab_agent.cli.agent_parser()
    parts += ["## trimtab-agent", _exit_codes(agent)]
    of_all = _common(_children(agent).values())
    parts += ["Arguments of all:", entries(of_all)]
    for parser in _children(agent).values():
        parts += of_command(parser, level=3, common=of_all)
    return "\n\n".join(part for part in parts if part)


def _is_short(parser: argparse.ArgumentParser, common: Collection[tuple[str, str]]) -> bool:
    """Whether the list of commands says everything about this one."""
    rows = (_row(action, parser) for action in parser._actions if _is_shown(action))
    return not parser.epilog and not _children(parser) and all(row in common for row in rows)


def _listed(name: str, parser: argparse.ArgumentParser, common: Collection[tuple[str, str]]) -> str:
    """The command in the list: with its usage if there is no more to say, otherwise as a link."""
    if _is_short(parser, common):
        return code(_usage(parser, short=True).replace("\n   ", ""))
    return f"[`{name}`](#trimtab-{name})"


def _common(parsers: Iterable[argparse.ArgumentParser]) -> list[tuple[str, str]]:
    """The rows of arguments that several commands have with the same meaning; one for each argument."""
    count: Counter[tuple[str, str]] = Counter()
    waiting = list(parsers)
    while waiting:
        parser = waiting.pop()
        waiting += _children(parser).values()
        count.update(_row(action, parser) for action in parser._actions if _is_shown(action))
    usual: dict[str, tuple[str, str]] = {}
    for row, times in count.most_common():
        if times >= MANY:
            usual.setdefault(row[0], row)
    return sorted(usual.values())


def of_command(parser: argparse.ArgumentParser, level: int, common: Collection[tuple[str, str]] = ()) -> Iterator[str]:
    """The parts of the page about a command and those below it; the rows of `common` stand elsewhere."""
    yield f"{'#' * level} {parser.prog}"
    if parser.description:
        yield _sentence(parser.description)
    children = _children(parser)
    rows = [_row(action, parser) for action in parser._actions if _is_shown(action)]
    if rows or not children:
        yield f"```\n{_usage(parser, short=bool(common))}\n```"
    if own := [row for row in rows if row not in common]:
        if len(own) > MUCH:
            yield f"`{parser.prog} --help` explains the arguments."
        else:
            yield entries(_merged(own))
    if parser.epilog:
        yield _exit_codes(parser)
    if of_all := [row for row in _common(children.values()) if row not in common]:
        yield f"Arguments of all:\n\n{entries(of_all)}"
    for child in children.values():
        yield from of_command(child, level + 1, [*common, *of_all])


def _merged(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Arguments of which the same is said stand in one row."""
    names: dict[str, str] = {}
    for name, text in rows:
        names[text] = f"{names[text]}, {name}" if text in names else name
    return [(name, text) for text, name in names.items()]


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The subcommands, with what the listing of them says as their description."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help for choice in action._choices_actions}
            for name, child in action.choices.items():
                child.description = child.description or texts.get(name)
            return dict(action.choices)
    return {}


def _is_shown(action: argparse.Action) -> bool:
    return not isinstance(action, argparse._SubParsersAction | argparse._HelpAction | argparse._VersionAction)


def _row(action: argparse.Action, parser: argparse.ArgumentParser) -> tuple[str, str]:
    value = _value(action)
    names = [f"{name} {value}".strip() for name in action.option_strings] or [value]
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    if not text:
        raise Undocumented(f"{parser.prog}: {names[0]} has no help text")
    words = [text]
    choices = [] if action.choices is None else list(map(str, action.choices))
    if choices and value.isupper() and not set(choices) <= set(re.split(r"[:;,| ]+", text)):
        words.append(f"One of {codes(choices)}.")
    listed = text.split(" ", 1)[0].rstrip(":,") in choices
    first = _ended(text) if listed else _sentence(text)  # a choice stays as it is typed
    return ", ".join(map(code, names)), " ".join([first, *map(_sentence, words[1:])])


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    name = action.metavar or (action.dest if not action.option_strings else action.dest.upper())
    if action.choices is not None and action.metavar is None:
        name = "{" + ",".join(map(str, action.choices)) + "}"
    name = name if isinstance(name, str) else " ".join(name)
    return {"+": f"{name} ...", "?": f"[{name}]", "*": f"[{name} ...]"}.get(str(action.nargs), name)


def _usage(parser: argparse.ArgumentParser, *, short: bool) -> str:
    words, left_out = [parser.prog], frozenset[str]()
    named = {each.option_strings[-1] for each in parser._actions if each.option_strings}
    if short and named >= OPTIONS:
        words.append("[OPTIONS]")
        left_out = OPTIONS
    either = {member: group for group in parser._mutually_exclusive_groups for member in group._group_actions}
    shown = list(filter(_is_shown, parser._actions))
    if short and len(shown) > MUCH:
        return _wrapped([*words, *(_called(action) for action in shown if not action.option_strings), "[OPTION ...]"])
    for action in shown:
        if left_out.intersection(action.option_strings):
            continue
        group = either.get(action)
        if group is None:
            word = _called(action)
            words.append(word if action.required or not action.option_strings else f"[{word}]")
        elif action is group._group_actions[0]:
            word = " | ".join(map(_called, group._group_actions))
            words.append(f"({word})" if group.required else f"[{word}]")
    return _wrapped(words)


def _called(action: argparse.Action) -> str:
    return " ".join([*action.option_strings[-1:], _value(action)]).strip()


def _wrapped(words: Iterable[str], width: int = 100) -> str:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return "\n".join(lines)


def _exit_codes(parser: argparse.ArgumentParser) -> str:
    """What the parser itself says below its help; command lines as code."""
    example = re.compile(rf"(?:\w+: +)?{re.escape(parser.prog.split()[0])} ")
    lines = (parser.epilog or "").splitlines()
    parts = ((is_code, list(each)) for is_code, each in groupby(lines, lambda line: bool(example.match(line))))
    return "\n\n".join(
        "\n".join(["```", *rows, "```"]) if is_code else plain("\n".join(rows)) for is_code, rows in parts
    )


def _sentence(text: str) -> str:
    text = text.strip()
    if text.split(" ", 1)[0].rstrip(",;:").isalpha():
        text = text[:1].upper() + text[1:]
    return _ended(text)


def _ended(text: str) -> str:
    return text if text.endswith(".") else text + "."
