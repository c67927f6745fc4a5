"""Tells systemd that a daemon has started, still works, and how it does (sd_notify(3)).

Without systemd it does nothing.
"""

import os
import socket
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress

INTERVAL_S = 10.0
"""How often it tells where no watchdog asks for more."""


class ServiceManager:
    """What started this process.

    It takes its variables out of the environment: child processes are not to speak for the daemon.
    """

    def __init__(
        self, environment: MutableMapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        watchdog_us = environment.pop("WATCHDOG_USEC", "")
        watched = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._clock = clock
        self._due = 0.0
        self.interval_s = min(INTERVAL_S, int(watchdog_us) / 4e6) if watchdog_us.isdecimal() and watched else INTERVAL_S
        """Seconds after which it is to be told again, at the latest: a quarter of the watchdog's time."""

    def tell(self, status: Callable[[], str]) -> None:
        """Say that the daemon has started and works, with one line; more often than `interval_s` it is not said."""
        now = self._clock()
        if not self._address or now < self._due:
            return
        self._due = now + self.interval_s
        message = f"READY=1\nWATCHDOG=1\nSTATUS={status()}".encode()
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto(message, self._address)
