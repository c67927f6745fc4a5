"""What `make demo` says while it installs."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[2] / "bin" / "install.py"
LINES = [
    "Collecting aiohttp==3.14.3 (from -r requirements.lock (line 3))\n",
    "  Downloading aiohttp-3.14.3-cp311-cp311-manylinux_2_17_x86_64.whl (1.7 MB)\n",
    "Collecting pyspark==4.2.0 (from -r requirements.lock (line 9))\n",
    "  Downloading https://somewhere/packages/pyspark-4.2.0.tar.gz (434.2 MB)\n",
    "Building wheels for collected packages: pyspark\n",
    "Installing collected packages: aiohttp, pyspark\n",
]


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_progress_names_the_package_and_its_size(install: ModuleType) -> None:
    progress = install.Progress(2)
    told = []
    for line in LINES:
        progress.hear(line)
        told.append(str(progress))
    assert told == [
        "package 1 of 2, aiohttp==3.14.3",
        "package 1 of 2, downloading aiohttp-3.14.3 (1.7 MB)",
        "package 2 of 2, pyspark==4.2.0",
        "package 2 of 2, downloading pyspark-4.2.0.tar.gz (434.2 MB)",
        "building wheels for collected packages: pyspark",
        "unpacking the packages",
    ]


def test_a_silent_command_is_told_of_in_plain_lines(
    install: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "TELL_S", 0.2)
    program = "import time; print('Collecting six==1.17.0', flush=True); time.sleep(1)"
    assert install.run([sys.executable, "-c", program], tmp_path / "log", install.Progress(1)) == 0
    told = capsys.readouterr().out
    assert "s: package 1 of 1, six==1.17.0\n" in told
    assert told.replace("\n", "").isprintable()


def test_a_failure_shows_the_end_of_the_output_and_where_all_of_it_is(
    install: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "print('ERROR: no such package'); raise SystemExit(3)"
    assert install.run([sys.executable, "-c", program], tmp_path / "log", install.Progress(1)) == 3
    told = capsys.readouterr().err
    assert told.startswith("ERROR: no such package\n")
    assert str(tmp_path / "log") in told
    assert (tmp_path / "log").read_text() == "ERROR: no such package\n"
