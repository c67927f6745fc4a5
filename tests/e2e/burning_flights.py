"""The flights app in a process that is busy with something else for as long as the file BURN is there."""

import os
import threading
import time
from pathlib import Path

from flights.app import app

SPAN_S = 0.02


def burn(file: Path) -> None:
    """Use about half a core in a thread of its own while the file exists."""
    while True:
        until = time.monotonic() + SPAN_S
        while file.exists() and time.monotonic() < until:
            pass
        time.sleep(SPAN_S)


threading.Thread(target=burn, args=[Path(os.environ["BURN"])], daemon=True).start()

if __name__ == "__main__":
    app.main()
