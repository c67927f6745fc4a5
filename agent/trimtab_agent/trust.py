"""The trust file of this host: read at the start and whenever it changes, so that keys change without restarts."""

import logging
from collections.abc import Mapping
from pathlib import Path

from trimtab_models.signing.envelope import Envelope
from trimtab_models.signing.keys import BadKey, KeyId, PublicKey, TrustedKeys, read_trust

MAX_BYTES = 10_000

log = logging.getLogger(__name__)

_State = tuple[int, int, int]


class TrustFile:
    """Whose signatures count, as the file says now.  May be used from several threads."""

    def __init__(self, path: Path) -> None:
        """Raises BadKey when the file cannot be used."""
        self._path = path
        self._seen = _state(path)
        self._trusted = _load(path)

    @property
    def keys(self) -> Mapping[KeyId, PublicKey]:
        """The keys in the file."""
        return self._follow().by_id

    def check(self, envelope: Envelope) -> None:
        """Raises BadMessage unless a trusted key vouches for the record."""
        self._follow().check(envelope)

    def _follow(self) -> TrustedKeys:
        """A file that cannot be used any more is said once; until it can, the keys of before hold."""
        state = _state(self._path)
        if state != self._seen:
            self._seen = state
            try:
                self._trusted = _load(self._path)
                log.info("trusted keys: %s", ", ".join(self._trusted.by_id))
            except BadKey as error:
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
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode()
        return read_trust(text)
    except OSError as error:
        raise BadKey(f"{path}: {error.strerror}") from error
    except (BadKey, UnicodeDecodeError) as error:
        raise BadKey(f"{path}: {error}") from error
