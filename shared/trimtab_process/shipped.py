"""Files that come with Trimtab beside its code: samples, systemd units, runbooks, alerts, dashboards, lists of jars."""

from pathlib import Path


def shipped(name: str) -> Path:
    """The file or folder of this name in the repository; a wheel has it in `shipped/` beside this module."""
    installed = Path(__file__).with_name("shipped")
    return (installed if installed.is_dir() else Path(__file__).parents[2]) / name
