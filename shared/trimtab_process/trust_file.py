"""The trust file of this host: read at the start and whenever it changes, so that keys change without restarts.

A file that is emptied, deleted or broken while we run takes no key away: a slip of whoever copies it would stop all
commands.  So deleting it revokes nothing; a file with other keys does.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from trimtab_process.credential_files import load_trust
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.keys import BadKey, KeyId, PublicKey, TrustedKeys

log = logging.getLogger(__name__)

_State = tuple[int, int, int]


class TrustFile:
    """Whose signatures count, as the file says now.  May be used from several threads."""

    def __init__(self, path: Path) -> None:
        """Raises BadKey when the file cannot be used."""
        self._path = path
        self._seen = _state(path)
        self._trusted = load_trust(path)
        self._fault: str | None = None
        self._following = Lock()

    @property
    def keys(self) -> Mapping[KeyId, PublicKey]:
        """The keys in the file."""
        return self._follow().by_id

    @property
    def usable(self) -> bool:
        """Whether the file can be used as it is now; if not, the keys of before hold."""
        self._follow()
        return self._fault is None

    def check(self, envelope: Envelope) -> None:
        """Raises BadMessage unless a trusted key vouches for the record."""
        self._follow().check(envelope)

    def _follow(self) -> TrustedKeys:
        """A file that cannot be used is tried each time: a lack of descriptors passes, and leaves the file as it is."""
        with self._following:
            state = _state(self._path)
            if state != self._seen or self._fault is not None:
                self._seen = state
                self._load()
            return self._trusted

    def _load(self) -> None:
        """What is wrong is said once; until the file can be used, the keys of before hold."""
        try:
            self._trusted = load_trust(self._path)
        except BadKey as error:
            if self._fault != (fault := str(error)):
                self._fault = fault
                log.error("the trust file cannot be used, the keys of before hold: %s", fault)
        else:
            self._fault = None
            log.info("trusted keys: %s", ", ".join(self._trusted.by_id))


def _state(path: Path) -> _State | None:
    """What changes when the file does; None when it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
