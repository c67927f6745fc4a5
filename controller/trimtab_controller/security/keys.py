"""Key files of the controller: the private key, readable only by its owner, and the trust file for the hosts.

A key is replaced in three steps, so that no command is refused meanwhile: `begin` (hosts trust the next key too),
`switch` (the controller signs with it), `finish` (hosts no longer trust the old key).  A step interrupted by a crash
can be repeated.
"""

from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import Annotated

from trimtab_process.credential_files import load_or_make_key, load_signing_key, load_trust
from trimtab_process.private_files import PRIVATE_MODE, replace_file
from trimtab_protocol.messages.codec import Key
from trimtab_protocol.settings.paths import FilePath
from trimtab_protocol.signing.keys import BadKey, PublicKey, SigningKey, TrustedKeys, write_trust

PUBLIC_MODE = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """The two files, and the steps from one key to the next.  Raises BadKey if both are the same file."""

    key: Annotated[FilePath, Key("key_file")]
    trust: Annotated[FilePath, Key("trust_file")]

    def __post_init__(self) -> None:
        if realpath(self.trust) in (realpath(self.key), realpath(self.next)):
            raise BadKey(f"{self.trust}: found the file of a private key, expected another file for public ones")

    @property
    def next(self) -> Path:
        """The file of the next key between `begin` and `switch`."""
        return self.key.with_name(self.key.name + ".next")

    def load(self) -> tuple[SigningKey, TrustedKeys]:
        """Load both files.  Raises BadKey, also if the trust file does not contain the key."""
        key, trusted = load_signing_key(self.key), load_trust(self.trust)
        if key.public not in trusted.keys:
            found = ", ".join(trusted.by_id)
            raise BadKey(f"{self.trust}: found keys {found}, expected key {key.public.id} of {self.key} among them")
        return key, trusted

    def create(self) -> SigningKey:
        """Create the first key.  Raises BadKey if there is one; a key without trust file is an interrupted creation."""
        if self.trust.exists():
            raise BadKey(f"{self.trust}: found a file, expected none: `trimtab keys rotate` changes a key")
        key = load_or_make_key(self.key)
        self._trust_only(key.public)
        return key

    def begin(self) -> SigningKey:
        """Create the next key, and trust it besides the present one.  Raises BadKey."""
        key, trusted = self.load()
        if not self.next.exists() and len(trusted.keys) > 1:
            raise BadKey(f"{self.trust}: found an old key, expected the present one alone: `finish` comes first")
        following = load_or_make_key(self.next)
        self._trust_only(key.public, following.public)
        return following

    def switch(self) -> SigningKey:
        """Sign with the next key from now on.  Raises BadKey."""
        if not self.next.exists():
            raise BadKey(f"{self.next}: found no next key, expected one: `begin` makes it")
        following = load_signing_key(self.next)
        if following.public not in load_trust(self.trust).keys:
            raise BadKey(f"{self.trust}: key {following.public.id} of {self.next} is not in it: `begin` adds it")
        _write(self.key, following.pem(), PRIVATE_MODE)
        self.next.unlink()
        return following

    def finish(self) -> SigningKey:
        """Trust only the present key.  Raises BadKey."""
        if self.next.exists():
            raise BadKey(f"{self.next}: found a key that does not sign yet: `switch` comes first")
        key, _ = self.load()
        self._trust_only(key.public)
        return key

    def _trust_only(self, *keys: PublicKey) -> None:
        _write(self.trust, write_trust(keys).encode(), PUBLIC_MODE)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace the file atomically.  Raises BadKey."""
    try:
        replace_file(path, content, mode)
    except OSError as error:
        raise BadKey(f"{path}: {error.strerror}") from error
