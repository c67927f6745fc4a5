"""What `make release` builds: one version everywhere, the same bytes each time, a bill of what is in it."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from deploy.debian.__main__ import PACKAGES, control
from deploy.release.__main__ import build_python, export
from deploy.release.checks import UNRELEASED, Refused, check, project_version, release_date
from deploy.release.checksums import SUMS, checksum, write_checksums
from deploy.release.sbom import bill_of_materials, named
from tests.paths import ROOT

VERSION = project_version(ROOT)
CHANGELOG = "# Changelog\n\n## 1.2.0 - 2026-12-01\n\n### Added\n- A thing.\n\n## 1.1.0 - 2026-11-01\n- Older.\n"


def test_the_version_is_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed_version("trimtab") == VERSION, "pyproject.toml was changed since `make` installed it"
    release_date((ROOT / "CHANGELOG.md").read_text(), VERSION)
    for module in ("trimtab_controller.cli", "trimtab_agent.cli"):
        command = [sys.executable, "-c", f"from {module} import main; main(['--version'])"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        assert told.split()[-1] == VERSION
    monkeypatch.setattr("deploy.debian.__main__.architecture", lambda: "amd64")
    for package in PACKAGES:
        control(package, VERSION, tmp_path / package.name)
        assert f"\nVersion: {VERSION}\n" in (tmp_path / package.name / "DEBIAN" / "control").read_text()
    tags = [
        image["newTag"]
        for path in (ROOT / "deploy/kubernetes").glob("*/kustomization.yaml")
        for image in yaml.safe_load(path.read_text()).get("images", ())
    ]
    assert set(tags) == {VERSION}
    named_in_guides = re.findall(r"trimtab[a-z-]*[-_](\d+\.\d+\.\d+)", (ROOT / "docs/guides/install.md").read_text())
    assert set(named_in_guides) == {VERSION}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("# Changelog\n", "the first section is 'nothing', expected '1.2.0 - DATE'"),
        (CHANGELOG.replace("1.2.0", "1.3.0"), "the first section is '1.3.0 - 2026-12-01', expected '1.2.0 - DATE'"),
        (CHANGELOG.replace(" - 2026-12-01", ""), "the first section is '1.2.0', expected '1.2.0 - DATE'"),
        (CHANGELOG.replace("- A thing.", ""), "the section 1.2.0 is empty"),
    ],
)
def test_a_version_that_the_changelog_does_not_tell_is_refused(text: str, fault: str) -> None:
    with pytest.raises(Refused, match=re.escape(fault)):
        release_date(text, "1.2.0")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit of a version 1.2.0."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")


def test_a_commit_with_a_dated_section_can_be_released_and_a_changed_tree_cannot(checkout: Path) -> None:
    assert check(checkout, draft=False) == "1.2.0"
    (checkout / "new.py").write_text("")
    with pytest.raises(Refused, match=r"not committed, the first is 'new\.py'"):
        check(checkout, draft=True)


def test_what_is_unreleased_is_a_draft_at_best(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("2026-12-01", UNRELEASED))
    commit(checkout)
    assert check(checkout, draft=True) == "1.2.0"
    with pytest.raises(Refused, match=r"1\.2\.0 is unreleased"):
        check(checkout, draft=False)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A commit of what wheel and sdist are made of here, with files beside it that are not committed."""
    folder = tmp_path / "repository"
    folder.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = {each.split("/")[0] for each in project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]}
    for name in included:
        shutil.copytree(ROOT / name, folder / name)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / name, folder / name)
    git(folder, "init", "-q")
    commit(folder)
    (folder / "agent" / "trimtab_agent" / "scratch.py").write_text("")
    return folder


def test_two_builds_of_a_commit_are_the_same_and_hold_only_what_is_committed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    built = []
    for name, mode in (("one", 0o600), ("another", 0o664)):
        out, scratch = tmp_path / name / "out", tmp_path / name / "scratch"
        scratch.mkdir(parents=True)
        source = export(repository, scratch / "source")
        for path in source.rglob("*.toml"):
            path.chmod(mode)  # as another umask leaves it
        build_python(source, out, scratch)
        built.append({path.name: checksum(path) for path in out.iterdir()})
        wheel = out / f"trimtab-{VERSION}-py3-none-any.whl"
    assert built[0] == built[1]
    assert set(built[0]) == {wheel.name, f"trimtab-{VERSION}.tar.gz"}
    names = zipfile.ZipFile(wheel).namelist()
    assert "trimtab_process/shipped/deploy/systemd/trimtab-console.service" in names
    assert not [name for name in names if "__pycache__" in name or "scratch" in name]


def test_checksums_are_those_that_sha256sum_finds(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 100_000)
    (tmp_path / "b").write_bytes(b"")
    assert write_checksums(tmp_path) == write_checksums(tmp_path) == tmp_path / SUMS
    done = subprocess.run([shutil.which("sha256sum"), "-c", SUMS], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "a: OK\nb: OK\n")


def test_the_bill_of_materials_is_valid_and_names_what_comes_along() -> None:
    bill = bill_of_materials(ROOT, VERSION, 1_700_000_000)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    components = {(row["name"], row["version"]): row for row in bill["components"]}
    names = {name for name, _ in components}
    assert {"pyspark", "ortools", "faust-streaming", "cffi", "kafka-clients", "spark-core_2.13"} <= names
    assert not {"pytest", "mypy", "matplotlib"} & names, "what only developers need"
    [cffi] = [row for name, row in components.items() if name[0] == "cffi"]
    assert "agent" in cffi["properties"][0]["value"]
    below = {row["ref"]: row["dependsOn"] for row in bill["dependencies"]}
    [cryptography] = [row["bom-ref"] for name, row in components.items() if name[0] == "cryptography"]
    assert cffi["bom-ref"] in below[cryptography]
    assert {ref for refs in below.values() for ref in refs} <= below.keys() | {r["bom-ref"] for r in bill["components"]}


@pytest.mark.parametrize(
    ("file", "artifact", "version"),
    [
        ("kafka-clients-4.3.1.jar", "kafka-clients", "4.3.1"),
        ("spark-sql-kafka-0-10_2.13-4.2.0.jar", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        ("zstd-jni-1.5.6-10.jar", "zstd-jni", "1.5.6-10"),
        ("netty-transport-native-epoll-4.2.7.Final-linux-x86_64.jar", "netty-transport-native-epoll",
         "4.2.7.Final-linux-x86_64"),
    ],
)  # fmt: skip
def test_a_jars_name_tells_artifact_and_version(file: str, artifact: str, version: str) -> None:
    assert named(file) == (artifact, version)
