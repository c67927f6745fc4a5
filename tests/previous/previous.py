"""The previous version, unpacked from its wheel, and scripts run under it."""

import os
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
[WHEEL] = HERE.glob("trimtab-*.whl")
SCRIPTS = HERE / "scripts"


def unpack(folder: Path) -> Path:
    """The packages of the previous version, to be put before this one's."""
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(folder)
    return folder


def environment(packages: Path | None) -> dict[str, str]:
    """For a process under the previous version; None: under this one."""
    if packages is None:
        return {}
    return {"PYTHONPATH": os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])}
