"""What the tests of all methods of `trimtab solve` need."""

import json

import pytest

from trimtab_controller.cli import main


@pytest.fixture
def solve(tmp_path, capsys):
    """(document or text, *arguments, method) -> exit code, output and error of `trimtab solve`."""

    def run(document, *arguments, method):
        path = tmp_path / "instance.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        code = main(["solve", method, str(path), *arguments])
        return code, *capsys.readouterr()

    return run
