"""What the tests of all instance readers and of `trimtab solve` need."""

import copy
import json

import pytest

from trimtab_controller.cli import main


@pytest.fixture
def broken():
    """(document, place, value) -> the document with another `value` at `place`, a list of steps; ... is none at all."""

    def change(document, place, value):
        changed = holder = copy.deepcopy(document)
        for step in place[:-1]:
            holder = holder[step]
        if value is ...:
            del holder[place[-1]]
        else:
            holder[place[-1]] = value
        return changed

    return change


@pytest.fixture
def solve(tmp_path, capsys):
    """(document or text, *arguments, method) -> exit code, output and error of `trimtab solve`."""

    def run(document, *arguments, method):
        path = tmp_path / "instance.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        code = main(["solve", method, str(path), *arguments])
        return code, *capsys.readouterr()

    return run
