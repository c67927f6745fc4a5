"""Key files of the controller: the private key, readable by its owner only, and the trust file that hosts get.

A key is changed in three steps, so that no command is refused on the way: `begin` (hosts learn to trust the next key
too), `switch` (the controller signs with it), `finish` (hosts no longer trust the old one).
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from trimtab_models.signing.keys import BadKey, PublicKey, SigningKey, TrustedKeys, read_trust, write_trust

PRIVATE_MODE, PUBLIC_MODE = 0o600, 0o644
MAX_BYTES = 10_000


def load_signing_key(path: Path) -> SigningKey:
    """The key in a file that nobody but its owner can read.  Raises BadKey."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise BadKey(f"found mode {mode:04o}, expected {PRIVATE_MODE:04o}: others can use this private key")
            return SigningKey.from_pem(file.read(MAX_BYTES))
    except OSError as error:
        raise BadKey(f"{path}: {error.strerror}") from error
    except BadKey as error:
        raise BadKey(f"{path}: {error}") from error


def load_trust(path: Path) -> TrustedKeys:
    """The keys in a trust file.  Raises BadKey."""
    try:
        return read_trust(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadKey(f"{path}: {error.strerror}") from error
    except (BadKey, UnicodeDecodeError) as error:
        raise BadKey(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """The two files, and the steps from one key to the next."""

    key: Path
    trust: Path

    @property
    def next(self) -> Path:
        """Where the next key waits between `begin` and `switch`."""
        return self.key.with_name(self.key.name + ".next")

    def load(self) -> tuple[SigningKey, TrustedKeys]:
        """Both; raises BadKey, also when the hosts would refuse what this key signs."""
        key, trusted = load_signing_key(self.key), load_trust(self.trust)
        if key.public not in trusted.keys:
            found = ", ".join(trusted.by_id)
            raise BadKey(f"{self.trust}: found keys {found}, expected key {key.public.id} of {self.key} among them")
        return key, trusted

    def create(self) -> SigningKey:
        """A first key.  Raises BadKey when one of the files is there already."""
        for path in (self.key, self.trust):
            if path.exists():
                raise BadKey(f"{path}: found a file, expected none: `trimtab keys rotate` changes a key")
        key = SigningKey.generate()
        _write(self.key, key.pem(), PRIVATE_MODE)
        self._trust_only(key.public)
        return key

    def begin(self) -> SigningKey:
        """Make the next key, and have it trusted besides the present one.  Raises BadKey."""
        key, trusted = self.load()
        if self.next.exists() or len(trusted.keys) > 1:
            raise BadKey(f"{self.trust}: a change of keys is under way: `switch` and `finish` end it")
        following = SigningKey.generate()
        _write(self.next, following.pem(), PRIVATE_MODE)
        self._trust_only(key.public, following.public)
        return following

    def switch(self) -> SigningKey:
        """Sign with the next key from now on.  Raises BadKey."""
        if not self.next.exists():
            raise BadKey(f"{self.next}: found no next key, expected one: `begin` makes it")
        following = load_signing_key(self.next)
        if following.public not in load_trust(self.trust).keys:
            raise BadKey(f"{self.trust}: key {following.public.id} of {self.next} is not in it")
        self.next.replace(self.key)
        return following

    def finish(self) -> SigningKey:
        """Trust the present key alone.  Raises BadKey."""
        if self.next.exists():
            raise BadKey(f"{self.next}: found a key that does not sign yet: `switch` comes first")
        key, _ = self.load()
        self._trust_only(key.public)
        return key

    def _trust_only(self, *keys: PublicKey) -> None:
        _write(self.trust, write_trust(keys).encode(), PUBLIC_MODE)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace the file, or leave it as it is; at no moment has it a wider mode.  Raises BadKey."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise BadKey(f"{path}: {error.strerror}") from error
