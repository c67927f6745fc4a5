"""The bill of materials (CycloneDX 1.6): what an installation of all extras brings, Python packages and Java's jars.

Versions are those of requirements.lock and of the lists in jars/; licenses are what the installed packages say.
"""

import re
import tomllib
import uuid
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from deploy.docker.locked import closure, direct, parents, read_lock
from deploy.release.checksums import checksum
from trimtab_controller.jars.fetching import SETS, cache_folder, read_checksums

Component = dict[str, Any]
NAMESPACE = uuid.UUID("6c9ab1a6-5a0d-5d0f-9d4c-0b4ddf0a3a0e")
"""Ours, for serial numbers that depend on version and time of the commit only."""
GROUPS = {
    "kafka": "org.apache.kafka",
    "scala-": "org.scala-lang",
    "spark-": "org.apache.spark",
    "log4j-": "org.apache.logging.log4j",
    "caffeine": "com.github.ben-manes.caffeine",
    "hash4j": "com.dynatrace.hash4j",
    "jspecify": "org.jspecify",
    "pcollections": "org.pcollections",
    "re2j": "com.google.re2j",
    "snappy-java": "org.xerial.snappy",
    "zstd-jni": "com.github.luben",
}
"""Beginning of a jar's name -> its group, for jars that do not say it themselves."""


def bill_of_materials(root: Path, version: str, at: int) -> dict[str, Any]:
    """The document for a version that was committed at this time (epoch seconds)."""
    blocks = read_lock((root / "requirements.lock").read_text(encoding="utf-8"))
    optional = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    extras = {extra: closure(direct(optional, [extra]), blocks) for extra in optional}
    python = {name: _package(name, blocks[name], extras) for name in sorted(set().union(*extras.values()))}
    jars = {name: _jars_of_set(root, name) for name in SETS}
    in_spark = _jars_in_spark()
    ours = f"pkg:pypi/trimtab@{version}"
    below: dict[str, set[str]] = {ours: set(), **{row["bom-ref"]: set() for row in python.values()}}
    below[ours] = {python[name]["bom-ref"] for name in direct(optional, list(optional))}
    below[ours] |= {row["bom-ref"] for rows in jars.values() for row in rows}
    for name, by in parents(blocks).items():
        for parent in by & python.keys():
            if name in python:
                below[python[parent]["bom-ref"]].add(python[name]["bom-ref"])
    below[python["pyspark"]["bom-ref"]] |= {row["bom-ref"] for row in in_spark}
    components = {
        row["bom-ref"]: row for row in (*python.values(), *in_spark, *(r for rows in jars.values() for r in rows))
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, f'{version} {at}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": ours,
                "name": "trimtab",
                "version": version,
                "purl": ours,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(refs)} for ref, refs in sorted(below.items())],
    }


def _package(name: str, block: str, extras: dict[str, set[str]]) -> Component:
    """A package of the lock."""
    version = re.match(r"[^=]+==(\S+)", block)[1]  # type: ignore[index]
    purl = f"pkg:pypi/{name}@{version}"
    needed_by = ",".join(sorted(extra for extra, names in extras.items() if name in names))
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        **_licenses(name),
        "properties": [{"name": "trimtab:extras", "value": needed_by}],
    }


def _licenses(name: str) -> Component:
    """What the installed package says of its license; nothing if it says none."""
    try:
        told = metadata(name)
    except PackageNotFoundError:
        return {}
    if "License-Expression" in told:
        return {"licenses": [{"expression": told["License-Expression"]}]}
    classified = [
        each.rpartition(" :: ")[2] for each in told.get_all("Classifier", []) if each.startswith("License ::")
    ]
    line = told["License"].strip().partition("\n")[0] if "License" in told else ""
    names = classified or ([line] if line else [])
    return {"licenses": [{"license": {"name": each}} for each in names]} if names else {}


def _jars_of_set(root: Path, name: str) -> list[Component]:
    """The jars that `trimtab jars` fetches, with the checksums that they must have."""
    listed = read_checksums(root / "jars" / f"{name}.sha256")
    return [_jar(cache_folder() / name / file, digest, f"trimtab jars: {name}") for file, digest in listed.items()]


def _jars_in_spark() -> list[Component]:
    """The jars that the package pyspark brings.

    By the files: where pip installs pyspark without building a wheel, there is no list of them with checksums.
    """
    places = getattr(find_spec("pyspark"), "submodule_search_locations", None) or ()
    found = sorted(path for place in places for path in Path(place, "jars").glob("*.jar"))
    return [_jar(path, checksum(path), "pyspark") for path in found]


def _jar(path: Path, digest: str, of: str) -> Component:
    artifact, version = named(path.name)
    group = _group(path, artifact)
    purl = f"pkg:maven/{group}/{artifact}@{version}" if group else f"pkg:generic/{artifact}@{version}"
    return {
        "type": "library",
        "bom-ref": f"{purl}#{digest[:12]}",
        **({"group": group} if group else {}),
        "name": artifact,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "purl": purl,
        "properties": [{"name": "trimtab:in", "value": of}],
    }


def named(file: str) -> tuple[str, str]:
    """Artifact and version of a jar's file name; an artifact for Scala ends with that one's version."""
    found = re.fullmatch(r"(.+_2\.13)-(.+)\.jar", file) or re.fullmatch(r"(.+?)-(\d.*)\.jar", file)
    if found is None:
        raise ValueError(f"found a jar named {file!r}, expected ARTIFACT-VERSION.jar")
    return found[1], found[2]


def _group(path: Path, artifact: str) -> str | None:
    """The group of a jar: as its own pom.properties says, if it is there, or by its name; None if it is not known."""
    known = next((group for start, group in GROUPS.items() if artifact.startswith(start)), None)
    if known is not None or not path.is_file():
        return known
    with zipfile.ZipFile(path) as jar:
        return next(iter(_groups_in(jar.namelist(), artifact)), None)


def _groups_in(names: Iterable[str], artifact: str) -> Iterable[str]:
    for name in names:
        if found := re.fullmatch(rf"META-INF/maven/([^/]+)/{re.escape(artifact)}/pom\.properties", name):
            yield found[1]
