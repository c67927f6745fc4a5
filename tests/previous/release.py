"""The previous version, unpacked from its wheel, and scripts run under it.

Before the first release whose messages later versions promise to read (0.2.0), there is no wheel: then this version
takes its place.
"""

import shutil
import zipfile
from pathlib import Path

from tests.paths import ROOT, python_path

HERE = Path(__file__).parent
WHEEL = next(HERE.glob("trimtab-*.whl"), None)
SCRIPTS = HERE / "scripts"


def unpack(folder: Path) -> Path:
    """The packages of the previous version, to be put before this one's."""
    if WHEEL is not None:
        with zipfile.ZipFile(WHEEL) as wheel:
            wheel.extractall(folder)
        return folder
    for package in ROOT.glob("*/trimtab_*/__init__.py"):
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(package.parent, folder / package.parent.name, ignore=ignored)
    return folder


def environment(packages: Path | None) -> dict[str, str]:
    """For a process under the previous version; None: under this one."""
    if packages is None:
        return {}
    return {"PYTHONPATH": python_path(packages)}
