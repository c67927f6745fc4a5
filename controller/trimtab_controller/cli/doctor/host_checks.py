"""Judges what was found on the controller's host.  No I/O here."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trimtab_controller.cli.doctor.findings import Check, Finding, fault, not_checked, ok, warning

JAVA_VERSIONS = ("17", "21")
LEAST_FREE_BYTES, SCARCE_BYTES = 200 * 2**20, 2 * 2**30
"""A checkpoint takes a few MB per batch until Spark cleans up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaSeen:
    """The installed Java: its command and version, or `fault`: why it cannot be run."""

    command: str | None = None
    version: str | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JarsSeen:
    """The jars of Spark: the number of listed ones, the missing ones, and what is wrong with the others."""

    folder: Path
    listed: int
    missing: tuple[str, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysSeen:
    """The files of [signing].  `fault`: why they cannot be used; `trust_mode` None: not known."""

    signs: str | None = None
    trusted: tuple[str, ...] = ()
    next_key: bool = False
    trust_file: Path | None = None
    trust_mode: int | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSeen:
    """The checkpoint directory; `folder` is the part of it that exists, None = it is not on this host.

    `writable` and `free_bytes` are those of `folder`.
    """

    place: str
    folder: Path | None = None
    is_folder: bool = True
    writable: bool = False
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSeen:
    """The port of the metrics.  `fault`: why it cannot be used; `ours`: a controller already answers there."""

    address: str
    fault: str | None = None
    ours: bool = False


def judge_java(seen: JavaSeen, *, needed: bool) -> Finding:
    """Whether Spark can run on this Java."""
    if not needed:
        return ok(Check.JAVA, "not needed here: [stream] embedded = false")
    install = "install a Java 17 or 21 runtime (Debian, Ubuntu: apt install openjdk-17-jre-headless), or set JAVA_HOME"
    if seen.fault is not None:
        return fault(Check.JAVA, seen.fault, install)
    version = seen.version or "unknown"
    if version.split(".")[0] not in JAVA_VERSIONS:
        return fault(Check.JAVA, f"{seen.command} is version {version}; Spark needs 17 or 21", install)
    return ok(Check.JAVA, f"version {version}, {seen.command}")


def judge_jars(seen: JarsSeen, *, needed: bool) -> Finding:
    """Whether Spark's jars exist and have the listed checksums."""
    if not needed:
        return ok(Check.JARS, "not needed here: [stream] embedded = false, or spark.jars names others")
    if seen.fault is not None:
        return fault(Check.JARS, seen.fault, "delete the file, then run `trimtab jars`")
    if seen.missing:
        text = f"{len(seen.missing)} of {seen.listed} jars of Spark are not in {seen.folder}"
        remedy = "run `trimtab jars` as the controller's user (it downloads from Maven Central), or set TRIMTAB_JARS"
        return fault(Check.JARS, text, remedy)
    return ok(Check.JARS, f"all {seen.listed} jars of Spark are in {seen.folder}, with the listed checksums")


def judge_keys(seen: KeysSeen | None) -> Iterator[Finding]:
    """Whether the controller can sign, and whether hosts would accept it; None: there is no [signing]."""
    if seen is None:
        text = "commands and placements are not signed: anyone who can write to the topics can command the agents"
        yield warning(Check.SIGNING, text, "`trimtab keys init` creates a key; then add [signing] and [trust]")
        return
    if seen.fault is not None:
        yield fault(Check.SIGNING, seen.fault, "correct [signing], or create the files by `trimtab keys init`")
        return
    text = f"key {seen.signs} signs, {seen.trust_file} trusts it"
    if seen.next_key or len(seen.trusted) > 1:
        step = "switch" if seen.next_key else "finish"
        yield warning(
            Check.SIGNING,
            f"{text}; a rotation of keys is under way",
            f"when all hosts have the trust file: `trimtab keys rotate {step}`",
        )
    else:
        yield ok(Check.SIGNING, text)
    if seen.trust_mode is not None and seen.trust_mode & 0o022:
        text = f"{seen.trust_file} has mode {seen.trust_mode:04o}: others than its owner can change who is trusted"
        yield warning(Check.SIGNING, text, f"chmod 644 {seen.trust_file}")


def judge_checkpoint(seen: CheckpointSeen) -> Finding:
    """Whether the stream can write its checkpoints."""
    if seen.folder is None:
        text = f"{seen.place} is not a folder of this host"
        return not_checked(Check.CHECKPOINT, text, "make sure that all Spark executors can write to it")
    if not seen.is_folder:
        return fault(Check.CHECKPOINT, f"{seen.place} is a file", "name a folder in [stream] checkpoint_dir")
    if not seen.writable:
        text = f"this user cannot write to {seen.folder}, where {seen.place} is to be"
        return fault(Check.CHECKPOINT, text, "change its owner, or [stream] checkpoint_dir")
    if seen.free_bytes is None:
        return not_checked(Check.CHECKPOINT, f"{seen.place} can be written, its free space is not known")
    text = f"{seen.place} can be written, {seen.free_bytes / 2**30:.1f} GiB are free"
    if seen.free_bytes < LEAST_FREE_BYTES:
        return fault(Check.CHECKPOINT, text, "free some space: the stream stops when there is none")
    if seen.free_bytes < SCARCE_BYTES:
        return warning(Check.CHECKPOINT, text, "free some space")
    return ok(Check.CHECKPOINT, text)


def judge_port(seen: PortSeen | None) -> Finding:
    """Whether the controller can serve its metrics; None: there is no [metrics]."""
    if seen is None:
        text = "the controller serves no metrics"
        return warning(Check.METRICS, text, 'to have alerts, add [metrics] listen = "127.0.0.1:9102" to the file')
    if seen.ours:
        return ok(Check.METRICS, f"a controller serves its metrics at {seen.address}")
    if seen.fault is not None:
        remedy = "end the other program (`ss -ltnp` shows it), or change [metrics] listen"
        return fault(Check.METRICS, f"{seen.address} cannot be used: {seen.fault}", remedy)
    return ok(Check.METRICS, f"{seen.address} is free")
