"""The trust file of this host: read at the start and whenever it changes, so that keys change without restarts.

If the file is emptied, deleted or broken while the process runs, the previous keys remain valid.  Otherwise a mistake
in copying it would stop all commands.  So deleting the file revokes nothing; a file with other keys does.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from trimtab_process.credential_files import load_trust
from trimtab_process.private_files import mark_of
from trimtab_protocol.signing.envelope import Envelope
from trimtab_protocol.signing.keys import BadKey, KeyId, PublicKey, TrustedKeys

log = logging.getLogger(__name__)


class TrustFile:
    """Checks signatures against the keys in the file.  May be used from several threads."""

    def __init__(self, path: Path) -> None:
        """Read the file.  Raises BadKey if it cannot be used."""
        self._path = path
        self._seen = mark_of(path)
        self._trusted = load_trust(path)
        self._fault: str | None = None
        self._following = Lock()

    @property
    def keys(self) -> Mapping[KeyId, PublicKey]:
        """The trusted keys, by id."""
        return self._follow().by_id

    @property
    def usable(self) -> bool:
        """Whether the file can be used in its current state.  If not, the previous keys remain valid."""
        self._follow()
        return self._fault is None

    def check(self, envelope: Envelope) -> None:
        """Raises BadMessage unless a trusted key has signed the record."""
        self._follow().check(envelope)

    def _follow(self) -> TrustedKeys:
        """The trusted keys, after reading the file if it has changed.

        A file that cannot be used is retried each time: a lack of descriptors passes without a change of the file.
        """
        with self._following:
            mark = mark_of(self._path)
            if mark != self._seen or self._fault is not None:
                self._seen = mark
                self._load()
            return self._trusted

    def _load(self) -> None:
        """Read the file.  If it cannot be used, keep the previous keys and log each fault once."""
        try:
            self._trusted = load_trust(self._path)
        except BadKey as error:
            if self._fault != (fault := str(error)):
                self._fault = fault
                log.error("the trust file cannot be used, the previous keys remain valid: %s", fault)
        else:
            self._fault = None
            log.info("trusted keys: %s", ", ".join(self._trusted.by_id))
