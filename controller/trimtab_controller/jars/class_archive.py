"""Class archives (AppCDS): a JVM that starts with one does not parse and verify its classes again.

An archive holds the classes that a program had loaded when it ended.  It fits one Java and one class path only, so it
is made on the machine that uses it.  The JVM ignores an archive that does not fit.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from trimtab_controller.jars.fetching import cache_folder
from trimtab_controller.jars.java import java_command

KEPT = 3
"""Number of archives of a program that are kept; each has about 150 MB."""
QUIET = "-Xlog:cds=off,cds+dynamic=off,class+path=off"
"""An archive that does not fit costs time and nothing else."""


def archive_of(program: str, jars: Iterable[Path], cache: Path | None = None) -> Path:
    """The path of the archive of a program with these jars, whether it exists or not.

    Another Java, or other jars, have another path.  Raises JavaMissingError.
    """
    java = Path(java_command()).resolve()
    found = hashlib.sha256()
    for path in (java, *sorted(jars)):
        status = path.stat()
        found.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return (cache or cache_folder()) / f"{program}-{found.hexdigest()[:16]}.jsa"


def use(archive: Path) -> tuple[str, ...]:
    """The options with which a JVM starts with the archive; none if it has not been made."""
    return (f"-XX:SharedArchiveFile={archive}", QUIET) if archive.is_file() else ()


def make(archive: Path) -> tuple[str, ...]:
    """The options with which a JVM makes the archive at its end."""
    return f"-XX:ArchiveClassesAtExit={archive}", QUIET


def delete_old(program: str, folder: Path) -> None:
    """Delete all archives of the program but the newest ones."""
    found = sorted(folder.glob(f"{program}-*.jsa"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in found[KEPT:]:
        path.unlink(missing_ok=True)
