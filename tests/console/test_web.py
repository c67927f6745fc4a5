"""The pages as files: nothing inline, nothing from elsewhere, the vendored library as it was published."""

import hashlib
import re

from trimtab_console.server import WEB

OURS = sorted(path for path in WEB.rglob("*") if path.suffix in (".js", ".css", ".html") and "vendor" not in path.parts)


def test_the_vendored_files_are_those_of_the_checksums() -> None:
    vendor = WEB / "vendor"
    lines = (vendor / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split() for line in lines)}
    assert set(sums) == {path.name for path in vendor.iterdir()} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    html = (WEB / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon[a-z]+=", html) == []
    for path in OURS:
        assert re.findall(r"https?://|innerHTML|insertAdjacentHTML|\beval\(", path.read_text()) == [], path.name


def test_every_module_that_is_imported_exists() -> None:
    for path in OURS:
        for name in re.findall(r'from "(\.[^"]+)"', path.read_text()):
            assert (path.parent / name).resolve().is_file(), f"{path.name}: {name}"
