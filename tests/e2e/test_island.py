"""A cut of the network as nobody but the cable knows of it."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.island import Island, obstacle

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))

CLIENT = """
import socket, sys
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60).makefile("rw", buffering=1)
for said in sys.stdin:
    print(said, end="", file=line)
    print(line.readline(), end="", flush=True)
"""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(20)
        yield made


def test_a_cut_loses_nothing_and_tells_nobody(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with Island(port) as island:
        command = island.inside(sys.executable, "-c", CLIENT, str(port))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            connection, _ = server.accept()
            with connection:
                print("before", file=client.stdin)
                assert connection.recv(100) == b"before\n"
                connection.sendall(b"answer\n")
                assert client.stdout.readline() == "answer\n"

                island.cut()
                print("meanwhile", file=client.stdin)
                connection.settimeout(1.0)
                with pytest.raises(TimeoutError):
                    connection.recv(100)
                assert client.poll() is None

                island.mend()
                connection.settimeout(20)
                assert connection.recv(100) == b"meanwhile\n", "of the same connection"
                connection.sendall(b"answer\n")
                assert client.stdout.readline() == "answer\n"
                client.stdin.close()


def test_one_port_and_no_other_leads_out(server: socket.socket) -> None:
    port = server.getsockname()[1]
    look = "import socket, sys; print(socket.socket().connect_ex(('127.0.0.1', int(sys.argv[1]))))"
    with Island(port) as one, Island() as other:
        codes = [
            int(subprocess.run(each.inside(sys.executable, "-c", look, str(port)), capture_output=True).stdout)
            for each in (one, other)
        ]
    assert codes[0] == 0
    assert codes[1] != 0
