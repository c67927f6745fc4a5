"""What the doctor says of the controller's own host: each fault by itself, and nothing but `ok` where all is well."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.controller.cli.findings import levels
from trimtab_controller.cli.doctor.findings import Level
from trimtab_controller.cli.doctor.host import see_checkpoint
from trimtab_controller.cli.doctor.host_checks import (
    CheckpointSeen,
    JarsSeen,
    JavaSeen,
    KeysSeen,
    PortSeen,
    judge_checkpoint,
    judge_jars,
    judge_java,
    judge_keys,
    judge_port,
)

KEYS = KeysSeen(signs="k", trusted=("k",), trust_file=Path("t"), trust_mode=0o644)


@pytest.mark.parametrize(
    ("java", "level"),
    [
        (JavaSeen(command="java", version="17.0.9"), Level.OK),
        (JavaSeen(command="java", version="21"), Level.OK),
        (JavaSeen(command="java", version="1.8.0_402"), Level.FAULT),
        (JavaSeen(command="java", version="170.1"), Level.FAULT),
        (JavaSeen(command="java"), Level.FAULT),
        (JavaSeen(fault="no Java found"), Level.FAULT),
    ],
)
def test_java(java: JavaSeen, level: Level) -> None:
    assert levels([judge_java(java, needed=True)]) == [level]
    assert levels([judge_java(java, needed=False)]) == [Level.OK]


def test_jars() -> None:
    whole = JarsSeen(folder=Path("jars"), listed=4)
    assert levels([judge_jars(whole, needed=True)]) == [Level.OK]
    some = judge_jars(replace(whole, missing=("a.jar",)), needed=True)
    assert (some.level, some.text) == (Level.FAULT, "1 of 4 jars of Spark are not in jars")
    assert "trimtab jars" in some.remedy
    assert levels([judge_jars(replace(whole, fault="a.jar has SHA-256 0"), needed=True)]) == [Level.FAULT]


def test_signing_keys() -> None:
    assert levels(list(judge_keys(KEYS))) == [Level.OK]
    assert levels(list(judge_keys(None))) == [Level.WARNING]
    assert levels(list(judge_keys(replace(KEYS, fault="t: not a key")))) == [Level.FAULT]
    [rotating] = judge_keys(replace(KEYS, next_key=True, trusted=("k", "n")))
    assert (rotating.level, rotating.remedy[-6:]) == (Level.WARNING, "witch`")
    assert levels(list(judge_keys(replace(KEYS, trust_mode=0o666)))) == [Level.OK, Level.WARNING]


def test_a_checkpoint_folder_is_found_writable_before_it_is_made(tmp_path: Path) -> None:
    future = tmp_path / "a" / "b"
    found = see_checkpoint(str(future))
    assert (found.folder, found.is_folder, found.writable) == (tmp_path, True, True)
    assert not future.exists()
    (tmp_path / "file").touch()
    assert judge_checkpoint(see_checkpoint(str(tmp_path / "file"))).level is Level.FAULT
    assert judge_checkpoint(see_checkpoint(f"file://{tmp_path}")).level is not Level.NOT_CHECKED
    assert judge_checkpoint(see_checkpoint("s3a://bucket/checkpoints")).level is Level.NOT_CHECKED


def test_checkpoint_space_and_rights() -> None:
    good = CheckpointSeen(place="p", folder=Path("p"), writable=True, free_bytes=10 * 2**30)
    assert judge_checkpoint(good).level is Level.OK
    assert judge_checkpoint(replace(good, free_bytes=2**30)).level is Level.WARNING
    assert judge_checkpoint(replace(good, free_bytes=0)).level is Level.FAULT
    assert judge_checkpoint(replace(good, free_bytes=None)).level is Level.NOT_CHECKED
    assert judge_checkpoint(replace(good, writable=False)).level is Level.FAULT


def test_the_port_of_the_metrics() -> None:
    taken = PortSeen(address="127.0.0.1:9102", fault="Address already in use")
    assert judge_port(taken).level is Level.FAULT
    assert judge_port(replace(taken, ours=True)).level is Level.OK
    assert judge_port(replace(taken, fault=None)).level is Level.OK
    assert judge_port(None).level is Level.WARNING
