"""`make release`: wheel, sdist, Debian packages, images, SBOM and checksums of the version in pyproject.toml.

All of it is made from the last commit, into dist/VERSION.  Wheel and sdist depend on nothing but that commit: two
builds have the same checksums.  Where dpkg or a Docker engine is missing, it says what it leaves out.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.debian.__main__ import PACKAGES, build, missing_programs
from deploy.release.checks import Refused, check
from deploy.release.checksums import SUMS, write_checksums
from deploy.release.sbom import bill_of_materials

ROOT = Path(__file__).parents[2]
IMAGES = ("agent", "controller", "console")
"""Targets of deploy/docker/Dockerfile; the others are for tries."""
IMAGES_FILE = "images.txt"


def main(argv: Sequence[str] | None = None) -> int:
    """Build; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release", description="Build a release into dist/VERSION.")
    parser.add_argument("--draft", action="store_true", help="accept a CHANGELOG section that says unreleased")
    parser.add_argument("--no-debs", action="store_true", help="leave the Debian packages out")
    parser.add_argument("--no-images", action="store_true", help="leave the images out")
    options = parser.parse_args(argv)
    try:
        version = check(ROOT, draft=options.draft)
    except Refused as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    out = ROOT / "dist" / version
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    os.environ["SOURCE_DATE_EPOCH"] = epoch = run("git", "log", "-1", "--format=%ct").strip()
    with tempfile.TemporaryDirectory(prefix="trimtab-release-") as folder:
        scratch = Path(folder)
        source = export(ROOT, scratch / "source")
        wheel = build_python(source, out, scratch)
        shutil.copyfile(source / "requirements.lock", out / "requirements.lock")
        left_out = [] if options.no_debs else build_debs(version, wheel, out, scratch)
        left_out += [] if options.no_images else build_images(source, version, out)
    bill = bill_of_materials(ROOT, version, int(epoch))
    (out / f"trimtab-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    write_checksums(out)
    for path in sorted(out.iterdir()):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.2f} MB")
    for line in left_out:
        print(f"left out: {line}")
    print(f"sign it: docs/guides/release.md ({SUMS} has a checksum of every file)")
    return 0


def export(repository: Path, folder: Path) -> Path:
    """The files of the last commit, and nothing else."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=repository, check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def build_python(source: Path, out: Path, scratch: Path) -> Path:
    """The sdist, and from it the wheel, so that it is known to be complete; returns the wheel's path."""
    hatchling = (sys.executable, "-m", "hatchling", "build", "-d", str(out))
    run(*hatchling, "-t", "sdist", cwd=source)
    [sdist] = out.glob("trimtab-*.tar.gz")
    run("tar", "-x", "-z", "-C", str(scratch), "-f", str(sdist))
    run(*hatchling, "-t", "wheel", cwd=scratch / sdist.name.removesuffix(".tar.gz"))
    [wheel] = out.glob("trimtab-*.whl")
    return wheel


def build_debs(version: str, wheel: Path, out: Path, scratch: Path) -> list[str]:
    """The Debian packages; what had to be left out, and why."""
    if missing := missing_programs():
        return [f"Debian packages: not found: {', '.join(missing)}"]
    for package in PACKAGES:
        build(package, version, wheel, scratch / package.name, out)
    return []


def build_images(source: Path, version: str, out: Path) -> list[str]:
    """The images, tagged with the version, and a list of their ids; what had to be left out, and why."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        return [f"images {', '.join(IMAGES)}: no Docker engine answers"]
    base = [f"--build-arg=BASE={os.environ['TRIMTAB_BASE']}"] if "TRIMTAB_BASE" in os.environ else []
    lines = []
    for target in IMAGES:
        name = f"trimtab-{target}:{version}"
        label = f"--label=org.opencontainers.image.version={version}"
        file = str(source / "deploy/docker/Dockerfile")
        run(
            "docker",
            "build",
            "-q",
            "--network=host",
            "-f",
            file,
            "--target",
            target,
            label,
            *base,
            "-t",
            name,
            str(source),
        )
        lines.append(f"{name} {run('docker', 'image', 'inspect', '-f', '{{.Id}}', name).strip()}\n")
    (out / IMAGES_FILE).write_text("".join(lines), encoding="utf-8")
    return []


def run(*command: str, cwd: Path = ROOT) -> str:
    """Run a command; its standard output.  It says itself what goes wrong."""
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
