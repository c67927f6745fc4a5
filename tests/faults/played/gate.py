"""Where processes are tampered with, without a hook in the product: see `tampered/sitecustomize.py`."""

import time
from pathlib import Path

TAMPERED = Path(__file__).parent / "tampered"


class Gate:
    """Stops the controller once, for a moment, between a decision and its publication."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._closed, self._reached = folder / "closed", folder / "reached"
        self.environment = {"FAULTS_GATE": str(folder)}

    def close(self) -> None:
        """The next publication of commands is stopped."""
        self._reached.unlink(missing_ok=True)
        self._closed.touch()

    def open(self) -> None:
        """Let everything pass."""
        self._closed.unlink(missing_ok=True)

    def reached_within(self, limit_s: float) -> bool:
        """Whether the controller has come to it in time; from then on it stands still for a moment."""
        deadline = time.monotonic() + limit_s
        while not self._reached.exists():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True
