"""Inspects the controller's host.  Nothing is written or fetched."""

import os
import re
import shutil
import socket
import stat
import subprocess
from pathlib import Path

from trimtab_controller.cli.doctor.host_checks import CheckpointSeen, JarsSeen, JavaSeen, KeysSeen, PortSeen
from trimtab_controller.jars.fetching import JarError, cache_folder, list_folder, read_checksums, verify
from trimtab_controller.jars.java import JavaMissingError, java_command
from trimtab_controller.security.keys import KeyFiles
from trimtab_process.health import answer_on
from trimtab_protocol.settings.listen import Listen
from trimtab_protocol.signing.keys import BadKey

JAVA_LIMIT_S = 20.0
"""How long `java -version` may take."""
ANSWER_LIMIT_S = 3.0
"""How long `trimtab doctor` waits for the answer of a metrics port."""
JAVA_VERSION = re.compile(r'^[^"\n]* version "([^"]*)"', re.MULTILINE)
"""The line with the quotes: others may come before it, such as "Picked up JAVA_TOOL_OPTIONS"."""
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
METRICS_OF_OURS = b"trimtab_controller_"
METRICS_READ_BYTES = 1_000_000


def see_java() -> JavaSeen:
    """The Java that Spark would run on."""
    try:
        command = java_command()
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=JAVA_LIMIT_S, check=False, errors="replace"
        )
    except JavaMissingError as error:
        return JavaSeen(fault=str(error))
    except (OSError, subprocess.TimeoutExpired) as error:
        return JavaSeen(fault=f"Java does not run: {error}")
    if done.returncode != 0:
        return JavaSeen(fault=f"`{command} -version` ended with exit code {done.returncode}")
    found = JAVA_VERSION.search(done.stderr + done.stdout)
    return JavaSeen(command=command, version=found[1] if found else None)


def see_jars() -> JarsSeen:
    """The jars of Spark's Kafka connector."""
    folder = cache_folder() / "spark"
    wanted = read_checksums(list_folder() / "spark.sha256")
    missing = tuple(name for name in wanted if not (folder / name).is_file())
    try:
        for name in wanted.keys() - set(missing):
            verify(folder / name, wanted[name])
    except (JarError, OSError) as error:
        return JarsSeen(folder=folder, listed=len(wanted), missing=missing, fault=str(error))
    return JarsSeen(folder=folder, listed=len(wanted), missing=missing)


def see_keys(files: KeyFiles) -> KeysSeen:
    """The signing key, and the keys of the trust file."""
    try:
        key, trusted = files.load()
        mode = stat.S_IMODE(files.trust.stat().st_mode)
    except (BadKey, OSError) as error:
        return KeysSeen(fault=str(error))
    return KeysSeen(
        signs=key.public.id,
        trusted=tuple(trusted.by_id),
        next_key=files.next.exists(),
        trust_file=files.trust,
        trust_mode=mode,
    )


def see_checkpoint(place: str) -> CheckpointSeen:
    """The folder of checkpoints or, if it does not exist yet, the one in which it will be created."""
    if place.startswith("file:"):
        path = Path("/" + place.removeprefix("file:").lstrip("/"))
    elif URI.match(place):
        return CheckpointSeen(place=place)
    else:
        path = Path(place).absolute()
    existing = next(each for each in (path, *path.parents) if each.exists())
    return CheckpointSeen(
        place=place,
        folder=existing,
        is_folder=existing.is_dir(),
        writable=os.access(existing, os.W_OK | os.X_OK),
        free_bytes=shutil.disk_usage(existing).free,
    )


def see_port(listen: Listen) -> PortSeen:
    """Whether a server could listen there: the port is opened for a moment and closed again."""
    address = f"{listen.address}:{listen.port}"
    try:
        family = socket.getaddrinfo(listen.address, listen.port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((listen.address, listen.port))
    except OSError as error:
        return PortSeen(address=address, fault=error.strerror or str(error), ours=_is_ours(listen))
    return PortSeen(address=address)


def _is_ours(listen: Listen) -> bool:
    try:
        return METRICS_OF_OURS in answer_on(listen, "/metrics", limit_s=ANSWER_LIMIT_S, most=METRICS_READ_BYTES)[1]
    except OSError:
        return False
