"""The previous version, unpacked from its wheel, and scripts run under it."""

import zipfile
from pathlib import Path

from tests.paths import python_path

HERE = Path(__file__).parent
[WHEEL] = HERE.glob("trimtab-*.whl")
SCRIPTS = HERE / "scripts"
MESSAGES = ("commands", "decode", "handover", "intents", "local", "names", "placement", "report", "snapshot", "status")
MOVED = {
    **{f"trimtab_protocol.messages.{name}": f"trimtab_models.messages.{name}" for name in MESSAGES},
    "trimtab_controller.kafka.chunks": "trimtab_controller.stream.chunks",
    "trimtab_agent.engines.faust.agent_link": "trimtab_agent.engines.faust.link",
    "trimtab_agent.engines.outcomes": "trimtab_agent.engines.faust.outcomes",
}
"""Module of this version that the scripts import -> where the previous version has it."""


def unpack(folder: Path) -> Path:
    """The packages of the previous version, to be put before this one's; the scripts find them by their new names."""
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(folder)
    for new, old in MOVED.items():
        module = folder.joinpath(*new.split(".")).with_suffix(".py")
        module.parent.mkdir(parents=True, exist_ok=True)
        for package in module.relative_to(folder).parents[:-1]:
            (folder / package / "__init__.py").touch()
        module.write_text(f"from {old} import *\n")
    return folder


def environment(packages: Path | None) -> dict[str, str]:
    """For a process under the previous version; None: under this one."""
    if packages is None:
        return {}
    return {"PYTHONPATH": python_path(packages)}
