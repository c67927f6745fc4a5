"""Which class archive belongs to a program; `tests/e2e/test_stream_process.py` shows that Spark uses its own."""

import os
import subprocess
from pathlib import Path

from trimtab_controller.jars import class_archive
from trimtab_controller.jars.java import java_command


def test_other_jars_have_another_archive(tmp_path: Path) -> None:
    jar = tmp_path / "a-1.jar"
    jar.write_bytes(b"first")
    before = class_archive.archive_of("spark", [jar], tmp_path)
    assert class_archive.archive_of("spark", [jar], tmp_path) == before
    jar.write_bytes(b"longer")
    assert class_archive.archive_of("spark", [jar], tmp_path) != before
    assert before.parent == tmp_path


def test_an_archive_is_used_only_where_there_is_one(tmp_path: Path) -> None:
    archive = tmp_path / "spark-1.jsa"
    assert class_archive.use(archive) == ()
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.use(archive)


def test_only_the_newest_archives_are_kept(tmp_path: Path) -> None:
    for age in range(class_archive.KEPT + 2):
        archive = tmp_path / f"spark-{age}.jsa"
        archive.touch()
        os.utime(archive, (1_000 - age, 1_000 - age))
    (tmp_path / "broker-0.jsa").touch()
    class_archive.delete_old("spark", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broker-0.jsa",
        *(f"spark-{age}.jsa" for age in range(class_archive.KEPT)),
    ]


def test_an_archive_that_does_not_fit_stops_nothing_and_says_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "spark-1.jsa"
    archive.write_bytes(b"no archive")
    ended = subprocess.run(
        [java_command(), *class_archive.use(archive), "-version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert "archive" not in ended.stdout + ended.stderr
