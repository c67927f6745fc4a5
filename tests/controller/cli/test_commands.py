"""Every command of `trimtab` is there, and says how it is used."""

import pytest

from trimtab_controller.cli import all_commands, main


@pytest.mark.parametrize("name", all_commands())
def test_a_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: trimtab {name} ")


def test_all_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert [name for name in all_commands() if f"    {name} " not in listed and f"    {name}\n" not in listed] == []
