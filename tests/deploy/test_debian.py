"""The Debian packages, without building one: `make test-deploy` installs them."""

import re
import subprocess
from pathlib import Path

import pytest

from deploy.debian.__main__ import PACKAGES, Package, control, maintainer_script
from tests.deploy.test_units import settings
from tests.paths import ROOT

SCRIPTS = ("postinst", "prerm", "postrm")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_maintainer_script_is_complete(package: Package, script: str, tmp_path: Path) -> None:
    text = maintainer_script(package, script)
    assert re.findall("@[A-Z]+@", text) == []
    (tmp_path / script).write_text(text)
    subprocess.run(["sh", "-n", tmp_path / script], check=True)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_makes_the_user_and_deletes_the_state_of_its_unit(package: Package) -> None:
    unit = settings(ROOT / "deploy/systemd" / f"{package.name}.service")
    assert unit["User"] == unit["Group"] == package.user
    assert unit["ExecStart"].split()[0].endswith(f"/{package.program}")
    folders = {
        f"/var/lib/{unit.get('StateDirectory', package.user)}",
        f"/var/cache/{unit.get('CacheDirectory', package.user)}",
    }
    [deleted] = re.findall(r"rm -rf (/.*)", maintainer_script(package, "postrm"))
    assert set(deleted.split()) == folders


def test_what_lies_in_etc_is_kept_when_it_was_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.debian.__main__.architecture", lambda: "amd64")
    (tmp_path / "etc" / "default").mkdir(parents=True)
    (tmp_path / "etc" / "default" / "trimtab-controller").write_text("")
    control(PACKAGES[1], "0.2.0", tmp_path)
    assert (tmp_path / "DEBIAN" / "conffiles").read_text() == "/etc/default/trimtab-controller\n"
    fields = dict(re.findall(r"(?m)^([A-Z][\w-]+): (.*)$", (tmp_path / "DEBIAN" / "control").read_text()))
    assert (fields["Package"], fields["Version"], fields["Architecture"]) == ("trimtab-controller", "0.2.0", "amd64")
    assert "python3." in fields["Depends"]
    assert "openjdk-17-jre-headless" in fields["Depends"]


def test_no_two_packages_have_a_program_of_the_same_name() -> None:
    """dpkg refuses to install a second package with the same file."""
    programs = [package.program for package in PACKAGES if package.in_path]
    assert sorted(programs) == sorted(set(programs))
