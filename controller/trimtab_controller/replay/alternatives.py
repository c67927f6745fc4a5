"""Other settings for a replay: `balance.load_distance=3,balance.max_migrations=20` over those of controller.toml."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_controller.configuration import Configuration, decode
from trimtab_process.toml_files import BadConfiguration
from trimtab_protocol.messages.decode import BadMessage

SECTIONS = ("balance", "execution", "scaling")
"""The sections whose keys a replay may set; the others do not change what is decided about recorded windows."""
AS_CONFIGURED = "as configured"
MAX_ALTERNATIVES = 8
"""Settings that one replay tries, in addition to those of the configuration."""
NEXT_KEY = re.compile(r",(?=\s*[a-z_]+\.[a-z_]+\s*=)")
BARE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Settings that a replay tries: AS_CONFIGURED or the text of --set, and the configuration that they make."""

    name: str
    configuration: Configuration


def alternatives(document: Mapping[str, Any], settings: list[str]) -> list[Alternative]:
    """The configuration as it is, then one alternative for each of `settings`.  Raises BadConfiguration."""
    if len(settings) > MAX_ALTERNATIVES:
        raise BadConfiguration(f"found {len(settings)} times --set, expected at most {MAX_ALTERNATIVES}")
    found = [Alternative(name=AS_CONFIGURED, configuration=_decoded("", document))]
    for text in settings:
        changed = dict(document)
        for section, values in _parsed(text).items():
            changed[section] = {**changed.get(section, {}), **values}
        found.append(Alternative(name=text, configuration=_decoded(f"--set {text}: ", changed)))
    return found


def _decoded(where: str, document: Mapping[str, Any]) -> Configuration:
    try:
        return decode(document)
    except BadMessage as error:
        raise BadConfiguration(f"{where}{error}") from error


def _parsed(text: str) -> dict[str, dict[str, Any]]:
    """The values by section and key."""
    try:
        document = tomllib.loads("\n".join(map(_with_quotes, NEXT_KEY.split(text))))
    except ValueError as error:
        raise BadConfiguration(f"--set {text}: found no SECTION.KEY=VALUE: {error}") from error
    for section, values in document.items():
        if section not in SECTIONS or not isinstance(values, dict):
            raise BadConfiguration(f"--set {text}: found {section!r}, expected a key of {', '.join(SECTIONS)}")
    return document


def _with_quotes(text: str) -> str:
    """The assignment with quotes around a bare word, which a shell would take away."""
    key, equals, value = text.partition("=")
    is_word = BARE.fullmatch(value.strip()) and value.strip() not in ("true", "false")
    return f'{key}{equals}"{value.strip()}"' if is_word else text
