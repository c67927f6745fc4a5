"""`make deb`: agent, controller and console as packages for a Debian that has the Python that runs this.

Each has an environment of its own in /usr/lib, with every package checked against its hash in requirements.lock.  It is
laid out by hand (PEP 405), since `venv` would write the folder in which it is made into it.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
OUT = ROOT / "out" / "packages"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
UNIT_BIN = "/opt/trimtab/bin"
MAINTAINER = f"{os.environ.get('DEBFULLNAME', 'Trimtab')} <{os.environ.get('DEBEMAIL', 'trimtab@localhost')}>"
"""Whoever builds it; named as for debhelper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What a package is made of.  `program`: its command, by module and function; `in_path`: also in /usr/bin."""

    name: str
    extra: str
    program: str
    function: str
    user: str
    sample: str
    depends: Sequence[str]
    summary: str
    description: Sequence[str]
    in_path: bool = True

    @property
    def home(self) -> str:
        """The folder of its environment."""
        return f"/usr/lib/{self.name}"


PACKAGES = (
    Package(
        name="trimtab-agent",
        extra="agent",
        program="trimtab-agent",
        function="trimtab_agent.cli:main",
        user="trimtab",
        sample="agent.toml",
        depends=(),
        summary="agent of Trimtab for hosts of stream-processing workers",
        description=(
            "Measures the workers of a stateful stream-processing job and moves their",
            "key groups, as the controller (trimtab-controller) plans it.",
        ),
    ),
    Package(
        name="trimtab-controller",
        extra="controller",
        program="trimtab",
        function="trimtab_controller.cli:main",
        user="trimtab-controller",
        sample="controller.toml",
        depends=("openjdk-17-jre-headless | java17-runtime-headless | java21-runtime-headless",),
        summary="controller of Trimtab and its command line",
        description=(
            "Balances a stateful stream-processing cluster while it runs: finds a small",
            "set of key groups to move, and has the agents move them.",
        ),
    ),
    Package(
        name="trimtab-console",
        extra="console",
        program="trimtab",
        function="trimtab_controller.cli:main",
        user="trimtab-console",
        sample="console.toml",
        depends=(),
        summary="browser console of Trimtab",
        description=(
            "Shows a cluster that Trimtab balances in a browser and by an HTTP API.",
            "Without a token file it only reads, and listens on the loopback.",
        ),
        in_path=False,  # trimtab-controller has it
    ),
)


def main() -> int:
    """Build the packages that are named (default: all) into out/packages; the exit code."""
    if missing := missing_programs():
        print(f"deb: not found: {', '.join(missing)}; expected a Debian", file=sys.stderr)
        return 1
    OUT.mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with tempfile.TemporaryDirectory(prefix="trimtab-deb-") as scratch:
        wheel = build_wheel(Path(scratch))
        for package in PACKAGES:
            if package.name in (sys.argv[1:] or [each.name for each in PACKAGES]):
                for old in OUT.glob(f"{package.name}_*.deb"):
                    old.unlink()
                made = build(package, project["version"], wheel, Path(scratch) / package.name, OUT)
                print(f"{made.relative_to(ROOT)}: {made.stat().st_size / 1e6:.0f} MB")
    return 0


def missing_programs() -> list[str]:
    """The programs that are needed and not found."""
    return [program for program in ("dpkg-deb", "dpkg") if shutil.which(program) is None]


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    return next(folder.glob("trimtab-*.whl"))


def build(package: Package, version: str, wheel: Path, root: Path, out: Path) -> Path:
    """Lay out the package's files below `root`, and make a package of them in `out`; its path."""
    environment(package, root / package.home[1:], wheel)
    if package.in_path:
        bin_folder = root / "usr" / "bin"
        bin_folder.mkdir(parents=True)
        (bin_folder / package.program).symlink_to(f"../lib/{package.name}/bin/{package.program}")
    unit = (ROOT / "deploy" / "systemd" / f"{package.name}.service").read_text(encoding="utf-8")
    write(
        root / "lib" / "systemd" / "system" / f"{package.name}.service", unit.replace(UNIT_BIN, f"{package.home}/bin")
    )
    (root / "etc" / "trimtab").mkdir(parents=True)
    if (default := HERE / f"{package.name}.default").exists():
        write(root / "etc" / "default" / package.name, default.read_text(encoding="utf-8"))
    documents(package, version, root / "usr" / "share")
    control(package, version, root)
    made = out / f"{package.name}_{version}_{architecture()}.deb"
    for each in (root, *root.rglob("*")):
        if not each.is_symlink():
            program = each.stat().st_mode & 0o100 and ".so" not in each.suffixes
            each.chmod(0o755 if each.is_dir() or program else 0o644)
    run("dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", root, made)  # -z6 takes minutes
    return made


def environment(package: Package, home: Path, wheel: Path) -> None:
    """A virtual environment of Debian's Python with all that the package's extra needs."""
    site = home / "lib" / PYTHON / "site-packages"
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-compile",
        "--no-warn-conflicts",
        "--target",
        site,
    ]
    locked = run(sys.executable, ROOT / "deploy/docker/locked.py", package.extra)
    write(requirements := home / "requirements.txt", locked)
    for what in (("--require-hashes", "-r", requirements), (wheel,)):
        run(*pip, *what)
        shutil.rmtree(site / "bin", ignore_errors=True)
    requirements.unlink()
    run("sh", ROOT / "deploy/docker/prune.sh", site)
    for pattern in ("direct_url.json", "RECORD"):  # they name the folder of the build
        for each in site.glob(f"*.dist-info/{pattern}"):
            each.unlink()
    write(home / "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(f"/usr/bin/{PYTHON}")
    module, _, function = package.function.partition(":")
    program = f"#!{package.home}/bin/python3\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
    write(home / "bin" / package.program, program)
    (home / "bin" / package.program).chmod(0o755)


def documents(package: Package, version: str, share: Path) -> None:
    """What Debian asks for in /usr/share, and the sample of the configuration."""
    folder = share / "doc" / package.name
    write(
        folder / "examples" / package.sample, (ROOT / "deploy" / "samples" / package.sample).read_text(encoding="utf-8")
    )
    license_text = "/usr/share/common-licenses/Apache-2.0"
    write(
        folder / "copyright",
        "Copyright 2026 the Trimtab authors\nLicense: Apache-2.0\n"
        f" On Debian systems the text is in {license_text}.\n"
        f"\nThe packages in {package.home}/lib are under licenses of their own: see their dist-info folders.\n",
    )
    date = formatdate(float(os.environ.get("SOURCE_DATE_EPOCH") or committed_at()), usegmt=True).replace("GMT", "+0000")
    change = "  * See CHANGELOG.md of Trimtab."
    entry = f"{package.name} ({version}) stable; urgency=medium\n\n{change}\n\n -- {MAINTAINER}  {date}\n"
    (folder / "changelog.gz").write_bytes(gzip.compress(entry.encode(), mtime=0))
    overrides = "".join(f"{package.name}: {tag}\n" for tag in OVERRIDDEN)
    write(share / "lintian" / "overrides" / package.name, overrides)


OVERRIDDEN = (
    "bogus-mail-host *",  # without DEBEMAIL
    "bogus-mail-host-in-debian-changelog *",
    "embedded-library *",  # wheels bring the libraries that they were tested with
    "library-not-linked-against-libc *",
    "unstripped-binary-or-object *",
    "wrong-path-for-interpreter *",  # a virtual environment has its own
)
"""What lintian takes for errors and is meant."""


def control(package: Package, version: str, root: Path) -> None:
    """The package's own files for dpkg."""
    size_kb = sum(each.lstat().st_size for each in root.rglob("*") if not each.is_dir()) // 1024
    depends = ("python3", PYTHON, "adduser", "libc6", *package.depends)
    lines = {
        "Package": package.name,
        "Version": version,
        "Architecture": architecture(),
        "Maintainer": MAINTAINER,
        "Installed-Size": str(size_kb),
        "Depends": ", ".join(depends),
        "Section": "admin",
        "Priority": "optional",
        "Description": "\n ".join((package.summary, *package.description)),
    }
    write(root / "DEBIAN" / "control", "".join(f"{name}: {text}\n" for name, text in lines.items()))
    for name in ("postinst", "prerm", "postrm"):
        write(root / "DEBIAN" / name, maintainer_script(package, name))
        (root / "DEBIAN" / name).chmod(0o755)
    conffiles = sorted(f"/{each.relative_to(root)}\n" for each in (root / "etc").rglob("*") if each.is_file())
    if conffiles:
        write(root / "DEBIAN" / "conffiles", "".join(conffiles))


def maintainer_script(package: Package, name: str) -> str:
    """The script of this name for this package."""
    text = (HERE / name).read_text(encoding="utf-8")
    for mark, value in {
        "@PACKAGE@": package.name,
        "@HOME@": package.home,
        "@PYTHON@": f"/usr/bin/{PYTHON}",
        "@USER@": package.user,
        "@STATE@": f"/var/lib/{package.user}",
        "@CACHE@": f"/var/cache/{package.user}",
    }.items():
        text = text.replace(mark, value)
    return text


def architecture() -> str:
    """Debian's name of this machine's architecture."""
    return run("dpkg", "--print-architecture").strip()


def committed_at() -> str:
    """When the last commit was made (epoch seconds)."""
    return run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def run(*command: str | Path) -> str:
    """Run a command; its standard output.  It says itself what goes wrong."""
    return subprocess.run(list(map(str, command)), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
