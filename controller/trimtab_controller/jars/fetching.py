"""Fetches the jars of the sandbox's broker and of Spark's Kafka connector once, and verifies them at each use.

`jars/<set>.ivy.xml` lists a set of jars, `jars/<set>.sha256` their checksums; both come with Trimtab.  The Ivy
that PySpark ships fetches them, so Java is the only tool needed.  The two sets have separate folders, because their
Kafka clients differ in version.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from trimtab_controller.jars.java import JavaMissingError, java_command
from trimtab_process.shipped import shipped

SETS = {"broker": "the Kafka broker, 44 MB", "spark": "Spark's Kafka connector, 10 MB"}
"""Name of each set -> what it is for, and its size."""
FETCH_LIMIT_S = 540.0
"""How long fetching the jars may take; they have 54 MB, so 100 kB/s suffice."""

Tell = Callable[[str], None]
"""Called with each line of progress."""
Retrieve = Callable[[Path, Path], None]
"""Fetches the jars listed in an Ivy file into an empty folder."""


class JarError(Exception):
    """Jars could not be fetched, or differ from the listed ones."""


def broker_version() -> str:
    """The version of the Kafka broker."""
    names = " ".join(read_checksums(list_folder() / "broker.sha256"))
    found = re.search(r"\bkafka_[\d.]+-([\d.]+)\.jar\b", names)
    if found is None:
        raise JarError("no Kafka broker is among the listed jars")
    return found[1]


def spark_jars() -> list[Path]:
    """The jars that Spark needs to read and write Kafka; missing ones are fetched."""
    return jars_of("spark")


def fetch(tell: Tell) -> None:
    """Fetch all missing jars and verify all of them; `tell` is called with each line of progress."""
    for name in SETS:
        jars_of(name, tell=tell)


def jars_of(
    name: str,
    *,
    lists: Path | None = None,
    cache: Path | None = None,
    retrieve: Retrieve | None = None,
    tell: Tell = lambda _: None,
) -> list[Path]:
    """The jars of one set, present and with the listed checksums.

    Several processes may call this at once: one fetches, the others wait.  Raises JarError if fetching fails or a file
    does not have its listed checksum.
    """
    lists = lists or list_folder()
    folder = (cache or cache_folder()) / name
    wanted = read_checksums(lists / f"{name}.sha256")
    if not complete(folder, wanted):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_suffix(".lock")):
            if not complete(folder, wanted):
                started = time.monotonic()
                tell(f"downloading the jars of {SETS.get(name, name)}, from Maven Central to {folder}")
                _fetch_into(folder, lists / f"{name}.ivy.xml", wanted, retrieve or ivy_retrieve)
                tell(f"{len(wanted)} jars in {time.monotonic() - started:.0f} s")
    return [folder / jar for jar in wanted]


def list_folder() -> Path:
    """The folder of Ivy files and checksum lists."""
    return shipped("jars")


def cache_folder() -> Path:
    """The folder of the fetched jars: TRIMTAB_JARS, else `trimtab/jars` in the user's cache folder."""
    chosen = os.environ.get("TRIMTAB_JARS")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trimtab" / "jars"


def read_checksums(path: Path) -> dict[str, str]:
    """File name -> SHA-256 (hex) from a list in the format of `sha256sum`."""
    checksums = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or not name:
            raise JarError(f"{path}: not a line of a SHA-256 list: {line!r}")
        checksums[name] = digest
    return checksums


def complete(folder: Path, wanted: Mapping[str, str]) -> bool:
    """Whether every wanted file exists.  Raises JarError for one with another checksum than the listed one."""
    if not all((folder / name).is_file() for name in wanted):
        return False
    for name, digest in wanted.items():
        verify(folder / name, digest)
    return True


def verify(path: Path, wanted: str) -> None:
    """Raise JarError if the file does not have the wanted SHA-256."""
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != wanted:
        raise JarError(f"{path} has SHA-256 {found}, expected {wanted}: delete it to have it fetched again")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file.  The wait ends: fetching has a limit, and the kernel releases the lock of a dead process."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ivy_retrieve(ivy_file: Path, folder: Path) -> None:
    """Fetch the jars of the Ivy file into the folder, with Ivy's default settings."""
    command = [java_command(), "-cp", str(_ivy_jar()), "org.apache.ivy.Main", "-warn", "-ivy", str(ivy_file)]
    with tempfile.TemporaryDirectory(prefix="trimtab-ivy-") as scratch:
        command += ["-cache", scratch, "-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise JarError(f"fetching the jars of {ivy_file} took longer than {FETCH_LIMIT_S:.0f} s") from error
    if ended.returncode != 0:
        story = "\n".join((ended.stdout + ended.stderr).strip().splitlines()[-15:])
        raise JarError(f"Ivy could not fetch the jars of {ivy_file}:\n{story}")


def main() -> int:
    """`python -m trimtab_controller.jars.fetching`: fetch the missing jars; return the exit code."""
    try:
        fetch(partial(print, flush=True))
    except (JarError, JavaMissingError) as error:
        print(f"jars: {error}", file=sys.stderr)
        return 1
    return 0


def _fetch_into(folder: Path, ivy_file: Path, wanted: Mapping[str, str], retrieve: Retrieve) -> None:
    """Fetch into a temporary folder, verify, then move file by file, so that no partial jar is ever visible."""
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as fetched:
        retrieve(ivy_file, Path(fetched))
        for name, digest in wanted.items():
            if not Path(fetched, name).is_file():
                raise JarError(f"{name} is listed, but {ivy_file} did not bring it")
            verify(Path(fetched, name), digest)
        for name in wanted:
            Path(fetched, name).replace(folder / name)


def _ivy_jar() -> Path:
    # Found, not imported: PySpark is imported in the stream package only.
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or []:
        for jar in Path(folder, "jars").glob("ivy-*.jar"):
            return jar
    raise JarError("the Ivy that PySpark ships was not found: install trimtab[controller]")


if __name__ == "__main__":
    sys.exit(main())
