"""The trust file of this host: read at the start and whenever it changes, so that keys change without restarts.

A file that is emptied, deleted or broken while we run takes no key away: a slip of whoever copies it would stop all
commands.  So deleting it revokes nothing; a file with other keys does.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from trimtab_models.signing.envelope import Envelope
from trimtab_models.signing.keys import MAX_TRUST_FILE, BadKey, KeyId, PublicKey, TrustedKeys, read_trust

log = logging.getLogger(__name__)

_State = tuple[int, int, int]


class TrustFile:
    """Whose signatures count, as the file says now.  May be used from several threads."""

    def __init__(self, path: Path) -> None:
        """Raises BadKey when the file cannot be used."""
        self._path = path
        self._seen = _state(path)
        self._trusted = _load(path)
        self._usable = True
        self._following = Lock()

    @property
    def keys(self) -> Mapping[KeyId, PublicKey]:
        """The keys in the file."""
        return self._follow().by_id

    @property
    def usable(self) -> bool:
        """Whether the file can be used as it is now; if not, the keys of before hold."""
        self._follow()
        return self._usable

    def check(self, envelope: Envelope) -> None:
        """Raises BadMessage unless a trusted key vouches for the record."""
        self._follow().check(envelope)

    def _follow(self) -> TrustedKeys:
        """A file that cannot be used any more is said once; until it can, the keys of before hold."""
        with self._following:
            state = _state(self._path)
            if state != self._seen:
                self._seen = state
                try:
                    self._trusted = _load(self._path)
                    self._usable = True
                    log.info("trusted keys: %s", ", ".join(self._trusted.by_id))
                except BadKey as error:
                    self._usable = False
                    log.error("the trust file cannot be used, the keys of before hold: %s", error)
            return self._trusted


def _state(path: Path) -> _State | None:
    """What changes when the file does; None when it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _load(path: Path) -> TrustedKeys:
    try:
        with path.open(encoding="utf-8") as file:
            return read_trust(file.read(MAX_TRUST_FILE + 1))
    except OSError as error:
        raise BadKey(f"{path}: {error.strerror}") from error
    except (BadKey, UnicodeDecodeError) as error:
        raise BadKey(f"{path}: {error}") from error
