"""The sample files and the code know the same configuration keys, and what is commented out states the defaults.

`docs/reference/configuration.md` is written from the samples and the readers; `tests/docs` holds that page.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from trimtab_agent.configuration import read_configuration
from trimtab_controller.configuration import decode
from trimtab_protocol.messages.decode import Fields
from trimtab_reference.configuration import SAMPLES, Read, parse_sample, whole

REFUSED = {"kafka.sasl.password"}
"""Asked for only to say where it belongs."""

OF_ONE_APP = re.compile(r"^(plans|scaling|disruption)\.apps\.\w+\.")
"""An app has the general keys; the sample names some of them."""


def asked(read: Read, document: Mapping[str, Any]) -> set[str]:
    """The keys that the code asks for when it reads a document."""
    names: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        for method in ("take", "has"):
            original = getattr(Fields, method)

            def noting(fields: Fields, name: str, original: Callable[[Fields, str], Any] = original) -> Any:
                names.add(fields.at(name))
                return original(fields, name)

            patch.setattr(Fields, method, noting)
        read(document)
    return names


@pytest.mark.parametrize("name", SAMPLES)
def test_every_key_of_a_sample_is_read_and_every_key_that_is_read_is_in_the_sample(name: str, tmp_path: Path) -> None:
    path, read = SAMPLES[name]
    text = path.read_text()
    sections, keys = parse_sample(text)
    documented = {key.path for key in keys} | {*sections} | {section.rpartition(".")[0] for section in sections}
    names = asked(read, whole(text, tmp_path))  # a key that the code does not know would be refused
    general = {OF_ONE_APP.sub(r"\1.", name).replace("[0]", "") for name in names}
    assert general - documented == REFUSED


def test_the_files_in_the_readme_are_accepted_as_they_stand() -> None:
    blocks = re.findall(r"^ *```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    agent, controller = (tomllib.loads(block) for block in blocks)
    assert read_configuration(agent).cluster == decode(controller).cluster == "prod"
