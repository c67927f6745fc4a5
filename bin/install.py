#!/usr/bin/env python3
"""Make the virtual environment from requirements.lock, and say what is going on: `bin/install.py FOLDER`.

Plain lines, at least one every ten seconds and no terminal control: the output reads the same in a log.
"""

import queue
import re
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
TELL_S = 10.0
SIZE = "about 710 MB to download, 1.5 GB when installed; 2 to 7 minutes"
LAST_LINES = 20
PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--no-compile")
"""Modules are compiled when they are first imported: most never are."""


def main() -> int:
    """Install; the exit code."""
    folder = Path(sys.argv[1])
    started = time.monotonic()
    wanted = len(re.findall(r"^[A-Za-z0-9._-]+==", LOCK.read_text(encoding="utf-8"), re.MULTILINE))
    print(f"[1/3] virtual environment in {folder}, Python {sys.version.split()[0]}", flush=True)
    venv.create(folder, with_pip=True, clear=True, symlinks=True)
    print(f"[2/3] {wanted} packages of requirements.lock: {SIZE}", flush=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", *PIP_OPTIONS]
    log = folder / "install.log"
    if code := run([*pip, "--require-hashes", "-r", str(LOCK)], log, Progress(wanted)):
        return code
    print("[3/3] trimtab itself", flush=True)
    if code := run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], log, Progress(1)):
        return code
    print(f"installed in {time.monotonic() - started:.0f} s", flush=True)
    return 0


class Progress:
    """What pip is at, from the lines that it prints."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._met = 0
        self._now = "starting"

    def hear(self, line: str) -> None:
        """Take one line of pip's output in."""
        words = line.split()
        if line.startswith("Collecting "):
            self._met += 1
            self._now = f"package {self._met} of {self._wanted}, {words[1]}"
        elif found := re.match(r"\s+(Downloading|Using cached) \S*?([^/\s]+) (\([\d.]+ \w+\))", line):
            name = "-".join(found[2].split("-")[:2])  # without the wheel's tags
            self._now = f"package {self._met} of {self._wanted}, {found[1].lower()} {name} {found[3]}"
        elif line.startswith("Installing collected"):
            self._now = "unpacking the packages"
        elif line.startswith("Building wheel"):
            self._now = line.strip().replace("Building", "building", 1)

    def __str__(self) -> str:
        return self._now


def run(command: list[str], log: Path, progress: Progress) -> int:
    """Run pip, tell every ten seconds what it is at, and show the end of its output if it fails; its exit code."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    heard: list[str] = []
    next_s = TELL_S
    while True:
        left_s = started + next_s - time.monotonic()
        try:
            line = lines.get(timeout=max(0.0, left_s))
        except queue.Empty:
            print(f"      {next_s:.0f} s: {progress}", flush=True)
            next_s += TELL_S
            continue
        if line is None:
            break
        heard.append(line)
        progress.hear(line)
    code = process.wait()
    with log.open("a", encoding="utf-8") as file:
        file.writelines(heard)
    if code != 0:
        sys.stderr.writelines(heard[-LAST_LINES:])
        print(f"pip ended with exit code {code}; all of its output is in {log}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
