"""Reads and creates files of signing keys, which only their owner may use; reads trust files, which anyone may read."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trimtab_process.private_files import PRIVATE_MODE, read_private, replace_file
from trimtab_protocol.signing.keys import MAX_TRUST_FILE, BadKey, SigningKey, TrustedKeys, read_trust


def load_signing_key(path: Path) -> SigningKey:
    """The key in a file that only its owner can use.  Raises BadKey, which names the file."""
    with _named(path):
        return SigningKey.from_pem(read_private(path).encode())


def load_or_make_key(path: Path) -> SigningKey:
    """Load the key, or create it; an existing key is never replaced, since others may trust it.  Raises BadKey."""
    if path.exists():
        return load_signing_key(path)
    key = SigningKey.generate()
    with _named(path):
        replace_file(path, key.pem(), PRIVATE_MODE)
    return key


def load_trust(path: Path) -> TrustedKeys:
    """The keys in a trust file.  Raises BadKey, which names the file."""
    with _named(path), path.open(encoding="utf-8") as file:
        if (found := stat.S_IMODE(os.fstat(file.fileno()).st_mode)) & stat.S_IWOTH:
            raise BadKey(f"found mode {found:04o}, expected one with which others cannot write: its keys sign commands")
        return read_trust(file.read(MAX_TRUST_FILE + 1))


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadKey(f"{path}: {error.strerror}") from error
    except (BadKey, UnicodeDecodeError) as error:
        raise BadKey(f"{path}: {error}") from error
