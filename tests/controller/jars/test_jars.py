import hashlib
import os
import re
import subprocess
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.narrow import not_none
from trimtab_controller.jars import class_archive
from trimtab_controller.jars.fetching import (
    SETS,
    JarError,
    broker_version,
    cache_folder,
    ivy_retrieve,
    jars_of,
    list_folder,
    read_checksums,
)
from trimtab_controller.jars.java import java_command

CONTENT = {"a-1.jar": b"first", "b-2.jar": b"second"}


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    folder = tmp_path / "lists"
    folder.mkdir()
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in CONTENT.items()]
    (folder / "broker.sha256").write_text("".join(lines))
    return folder


class Registry:
    """Stands in for Ivy: brings the content it was given, and counts how often it was asked."""

    def __init__(self, content: dict[str, bytes], delay_s: float = 0.0) -> None:
        self.content = content
        self.delay_s = delay_s
        self.asked = 0

    def __call__(self, ivy_file: Path, folder: Path) -> None:
        self.asked += 1
        for name, content in self.content.items():
            (folder / name).write_bytes(content)
            time.sleep(self.delay_s)


def test_fetched_once_then_served_from_the_folder(lists: Path, tmp_path: Path) -> None:
    registry = Registry(CONTENT)
    for _ in range(2):
        jars = jars_of("broker", lists=lists, cache=tmp_path / "cache", retrieve=registry)
        assert [(jar.name, jar.read_bytes()) for jar in jars] == list(CONTENT.items())
    assert registry.asked == 1
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["broker", "broker.lock"]


def test_a_changed_file_is_refused_by_name_found_and_expected(lists: Path, tmp_path: Path) -> None:
    registry = Registry(CONTENT)
    jar = jars_of("broker", lists=lists, cache=tmp_path, retrieve=registry)[1]
    jar.write_bytes(b"forged")

    with pytest.raises(JarError) as refused:
        jars_of("broker", lists=lists, cache=tmp_path, retrieve=registry)

    found, expected = hashlib.sha256(b"forged").hexdigest(), hashlib.sha256(b"second").hexdigest()
    assert str(refused.value) == f"{jar} has SHA-256 {found}, expected {expected}: delete it to have it fetched again"
    assert jar.read_bytes() == b"forged"
    assert registry.asked == 1


def test_a_wrong_file_from_the_registry_is_never_kept(lists: Path, tmp_path: Path) -> None:
    with pytest.raises(JarError, match=r"b-2\.jar has SHA-256 .*, expected "):
        jars_of("broker", lists=lists, cache=tmp_path / "cache", retrieve=Registry({**CONTENT, "b-2.jar": b"forged"}))
    assert list((tmp_path / "cache" / "broker").iterdir()) == []


def test_a_file_the_registry_did_not_bring_is_named(lists: Path, tmp_path: Path) -> None:
    with pytest.raises(JarError, match=r"b-2\.jar is listed, but .*broker\.ivy\.xml did not bring it"):
        jars_of("broker", lists=lists, cache=tmp_path, retrieve=Registry({"a-1.jar": b"first"}))


def test_two_at_once_fetch_once(lists: Path, tmp_path: Path) -> None:
    # Each opens the lock file anew, so threads exclude each other by flock as processes do.
    registry = Registry(CONTENT, delay_s=0.1)
    served: list[list[bytes]] = []

    def take() -> None:
        jars = jars_of("broker", lists=lists, cache=tmp_path, retrieve=registry)
        served.append([jar.read_bytes() for jar in jars])

    takers = [threading.Thread(target=take) for _ in range(4)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join(60)
    assert served == [[b"first", b"second"]] * 4
    assert registry.asked == 1


def test_a_damaged_list_is_refused(lists: Path, tmp_path: Path) -> None:
    (lists / "broker.sha256").write_text("abc  a-1.jar\n")
    with pytest.raises(JarError, match=r"broker\.sha256: not a line of a SHA-256 list: 'abc  a-1\.jar'"):
        jars_of("broker", lists=lists, cache=tmp_path, retrieve=Registry(CONTENT))


def test_ivy_says_what_it_could_not_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An address nobody listens on in place of the registry's proxy: no network is needed to fail.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")
    with pytest.raises(JarError, match=r"(?s)Ivy could not fetch .*spark\.ivy\.xml.*commons-pool2.*2\.13\.1"):
        ivy_retrieve(list_folder() / "spark.ivy.xml", tmp_path)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TRIMTAB_JARS": "/chosen", "XDG_CACHE_HOME": "/xdg", "HOME": "/home/me"}, "/chosen"),
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/home/me"}, "/xdg/trimtab/jars"),
        ({"HOME": "/home/me"}, "/home/me/.cache/trimtab/jars"),
    ],
)
def test_where_jars_are_kept(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str) -> None:
    for name in ("TRIMTAB_JARS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


def test_the_version_of_the_broker_is_the_one_asked_for() -> None:
    dependency = not_none(
        ElementTree.parse(list_folder() / "broker.ivy.xml").find("dependencies/dependency[@name='kafka_2.13']")
    )
    assert broker_version() == dependency.get("rev")


@pytest.mark.parametrize("name", SETS)
def test_the_lists_name_what_the_ivy_files_ask_for(name: str) -> None:
    asked = ElementTree.parse(list_folder() / f"{name}.ivy.xml").iterfind("dependencies/dependency")
    wanted = {f"{dependency.get('name')}-{dependency.get('rev')}.jar" for dependency in asked}
    listed = set(read_checksums(list_folder() / f"{name}.sha256"))
    assert wanted <= listed
    assert all(re.fullmatch(r"[\w.-]+\.jar", jar) for jar in listed)
    assert name == "broker" or listed == wanted


# ---- which class archive belongs to a program; `tests/e2e/test_stream_process.py` shows that Spark uses its own


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
