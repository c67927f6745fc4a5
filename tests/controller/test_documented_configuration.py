"""The sample files and the code know the same configuration keys, and what is commented out states the defaults.

`docs/reference/configuration.md` is written from the samples and the readers; `tests/docs` holds that page.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import pytest

from tests.paths import ROOT
from trimtab_agent.configuration import AgentConfiguration, WorkerConfiguration, read_configuration
from trimtab_console.configuration import ConsoleConfiguration
from trimtab_controller.configuration import Configuration, decode
from trimtab_protocol.messages.codec import Inline, WrittenAs, members
from trimtab_protocol.settings.kafka import KafkaSettings, SaslUser
from trimtab_reference.configuration import SAMPLES, parse_sample, whole

DECLARED = {
    "controller.toml": Configuration,
    "agent.toml": AgentConfiguration,
    "console.toml": ConsoleConfiguration,
}


def keys_of(kind: Any, section: str = "") -> Iterator[str]:
    """The keys that a class reads; those of one app and of a rule stand elsewhere."""
    for each in members(kind):
        path = ".".join(filter(None, (section, each.table, each.keys[0])))
        bare, rules = each.kind, list[Any]()
        while get_origin(bare) is Annotated or NoneType in get_args(bare):
            rules.extend(getattr(bare, "__metadata__", ()))
            bare = get_args(bare)[0]
        if isinstance(each.spread, Inline):
            yield from keys_of(bare, path.rpartition(".")[0])
            continue
        yield path
        if bare is KafkaSettings:
            yield from keys_of(KafkaSettings, path)
            yield from keys_of(SaslUser, f"{path}.sasl")  # the sample says of those with tokens that there are some
        elif path == "workers":
            yield from keys_of(WorkerConfiguration, f"{path}.w0")
        elif is_dataclass(bare) and not any(isinstance(rule, WrittenAs) for rule in rules):
            yield from keys_of(bare, path)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_key_of_a_sample_is_read_and_every_key_that_is_read_is_in_the_sample(name: str, tmp_path: Path) -> None:
    path, read = SAMPLES[name]
    text = path.read_text()
    sections, keys = parse_sample(text)
    documented = {key.path for key in keys} | {*sections} | {section.rpartition(".")[0] for section in sections}
    read(whole(text, tmp_path))  # a key that the code does not know would be refused
    assert set(keys_of(DECLARED[name])) - documented == set()


def test_the_files_in_the_readme_are_accepted_as_they_stand() -> None:
    blocks = re.findall(r"^ *```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    agent, controller = (tomllib.loads(block) for block in blocks)
    assert read_configuration(agent).cluster == decode(controller).cluster == "prod"
