"""A host of its own on this machine: a network namespace whose only way out is a cable to some ports of 127.0.0.1.

Everything inside still talks to 127.0.0.1: a rule of the namespace sends the given ports over a veth pair to this
machine's loopback, all other ports are the namespace's own.  So the configuration of a program is the same inside and
outside, no packet can leave the machine, and each island is cut off alone.  The addresses of the pair are link-local
(169.254.0.0/16); nobody else sees them.

A cut takes this machine's end of the cable down: packets vanish, nobody is told, connections stay open, and go on where
they were when it is mended in time.  (`proxy.Proxy` needs no rights, but it answers in the broker's name: it accepts
connections, and closes them when it is mended.)
"""

import ipaddress
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

TOOLS = ("ip", "nsenter", "unshare")
LIMIT_S = 60.0

OUTSIDE = """
ip link add {cable} type veth peer name cable netns {pid}
ip address add {outer}/30 dev {cable}
echo 1 > /proc/sys/net/ipv4/conf/{cable}/route_localnet
ip link set {cable} up
"""
INSIDE = """
for file in conf/all/rp_filter conf/cable/rp_filter; do echo 0 > /proc/sys/net/ipv4/$file; done
for file in route_localnet accept_local; do echo 1 > /proc/sys/net/ipv4/conf/cable/$file; done
ip link set lo up
ip address add {inner}/30 dev cable
ip link set cable up
ip neighbour add {outer} lladdr {hardware} nud permanent dev cable
ip route add default via {outer} table 100
ip rule add pref 20 lookup local
"""
# Known for good, the neighbour is not asked for: a failed question would tell programs that the way is gone.
PORT = "ip rule add pref 10 to 127.0.0.1 ipproto tcp dport {port} lookup 100\n"
LOCAL_LAST = "ip rule del pref 0\n"


class Island:
    """`ports`: those of this machine's 127.0.0.1 that can be reached from inside.  Ends with the process that made it.

    Raises OSError and subprocess.CalledProcessError where this is not allowed: ask `obstacle` before.
    """

    def __init__(self, *ports: int) -> None:
        # It holds the namespace until its input ends, by `close` or by the end of this process.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        try:
            if not self._holder.stdout.readline():
                raise PermissionError(self._holder.stderr.read().strip())
            self._lay_cable(ports)
        except BaseException:
            self.close()
            raise

    def _lay_cable(self, ports: Sequence[int]) -> None:
        outer, inner = free_link()
        self._cable = f"cable{self._holder.pid}"
        _shell(OUTSIDE.format(cable=self._cable, pid=self._holder.pid, outer=outer))
        hardware = Path(f"/sys/class/net/{self._cable}/address").read_text(encoding="ascii").strip()
        script = INSIDE.format(inner=inner, outer=outer, hardware=hardware)
        _shell(script + "".join(PORT.format(port=port) for port in ports) + LOCAL_LAST, *self.inside())

    def inside(self, *command: str) -> list[str]:
        """The command line that runs a command there; it keeps its process id, and so do signals."""
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", *command]

    def fetch(self, url: str) -> str:
        """What a server inside answers; raises CalledProcessError."""
        program = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())"
        command = self.inside(sys.executable, "-c", program, url)
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout

    def cut(self) -> None:
        """From now on nothing passes."""
        _shell(f"ip link set {self._cable} down")

    def mend(self) -> None:
        """The cable is whole again."""
        _shell(f"ip link set {self._cable} up")

    def close(self) -> None:
        """Give it up; it is gone when the last process in it has ended."""
        self._holder.communicate(timeout=LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@cache
def obstacle() -> str | None:
    """Why there can be no island on this machine; None when there can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"tools are missing: {', '.join(missing)} (packages iproute2, util-linux)"
    if os.geteuid() != 0:
        return "only root may lay a cable between network namespaces"
    try:
        Island().close()
    except subprocess.CalledProcessError as error:
        return f"the machine does not allow it: {error.stderr.strip()}"
    except OSError as error:
        return f"the machine does not allow it: {error}"
    return None


def free_link() -> tuple[str, str]:
    """Both addresses of a link-local network of four that no interface of this machine is in."""
    taken = _shell("ip -oneline -4 address show")
    while True:
        chosen = f"169.254.{random.randint(1, 250)}.{4 * random.randrange(64)}/30"
        outer, inner = map(str, ipaddress.ip_network(chosen).hosts())
        if f" {outer}/" not in taken:
            return outer, inner


def _shell(script: str, *prefix: str) -> str:
    done = subprocess.run([*prefix, "sh", "-ec", script], check=True, capture_output=True, text=True, timeout=LIMIT_S)
    return done.stdout
