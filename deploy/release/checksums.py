"""SHA256SUMS, as `sha256sum -c` reads it."""

import hashlib
from pathlib import Path

SUMS = "SHA256SUMS"


def write_checksums(folder: Path) -> Path:
    """Write the checksums of all files in a folder into it; the path of the list."""
    path = folder / SUMS
    path.unlink(missing_ok=True)
    files = sorted(each for each in folder.iterdir() if each.is_file())
    path.write_text("".join(f"{checksum(each)}  {each.name}\n" for each in files), encoding="utf-8")
    return path


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
