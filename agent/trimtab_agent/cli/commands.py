"""Implements the commands of `trimtab-agent`."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from trimtab_agent.cli.enroll import run_enroll
from trimtab_agent.configuration import AgentConfiguration, load_configuration
from trimtab_agent.daemon import StartError, limits_of, run_agent
from trimtab_agent.kafka_link import check_client
from trimtab_agent.sampler.disks import DiskSpace, fullest_disk
from trimtab_agent.sampler.readings import find_quotas
from trimtab_process.credential_files import load_signing_key
from trimtab_process.exit_codes import BAD_USAGE, DONE, FAILED
from trimtab_process.health import READY, ask
from trimtab_process.logs import log_to_stderr
from trimtab_process.toml_files import BadConfiguration
from trimtab_process.trust_file import TrustFile
from trimtab_protocol.settings.listen import Listen
from trimtab_protocol.signing.keys import BadKey


def run_command(command: str, path: Path, *, token_file: Path | None = None) -> int:
    """Carry out `run`, `check`, `health` or `enroll` with the configuration at `path`; returns the exit code."""
    try:
        configuration = load_configuration(path)
        check_client(configuration.kafka, path)
    except BadConfiguration as exc:
        print(exc, file=sys.stderr)
        return BAD_USAGE
    if command == "health":
        return show_health(configuration.metrics, path)
    if command == "enroll":
        return run_enroll(configuration, token_file)
    if command == "check":
        try:
            print(describe(configuration))
        except BadKey as exc:
            print(f"{path}: {exc}", file=sys.stderr)
            return BAD_USAGE
        doubts = list(folder_doubts(configuration))
        print("\n".join(doubts), end="\n" if doubts else "", file=sys.stderr)
        return BAD_USAGE if unusable(configuration.state_dir) else DONE
    log_to_stderr()
    try:
        run_agent(configuration)
    except StartError as exc:
        logging.getLogger(__name__).error("%s", exc)
        return FAILED
    return DONE


def show_health(listen: Listen | None, path: Path) -> int:
    """Print what the running agent answers; the exit code is 1 if it does not reach Kafka."""
    if listen is None:
        print(f"{path}: found no [metrics], expected listen", file=sys.stderr)
        return BAD_USAGE
    verdict = ask(listen, READY)
    print(verdict.text)
    return DONE if verdict.well else FAILED


def describe(configuration: AgentConfiguration) -> str:
    """Describe what the agent would do with this configuration on this host, and the basis of its measurements."""
    quotas = find_quotas()
    limits = limits_of(configuration, quotas)
    memory = f"{quotas.memory.limit:.0f} bytes by cgroup" if quotas.memory else "no quota"
    lines = [
        f"cluster {configuration.cluster}, host {configuration.host}, a report every {configuration.interval_s:g} s",
        f"capacity of the host: {limits.cores:g} cores, basis {limits.basis}; memory: {memory}",
        f"type of the host: {limits.type or 'not known'}, speed of a core {limits.speed:.2f}"
        + (f", zone {limits.zone}" if limits.zone else ""),
    ]
    lines.append(f"disk of the workers' state: {_describe_disk(fullest_disk(configuration.data_folders))}")
    lines.append(f"commands: {_describe_trust(configuration.trust)}")
    lines.append(f"reports and acks: {_describe_key(configuration.key)}")
    for worker, settings in configuration.workers.items():
        basis = "config" if settings.capacity else limits.basis
        cores = settings.capacity or min(1.0, limits.cores)
        pool = f", for app {settings.app}" if settings.app else ""
        start = f"can be started{pool}" if settings.command else "cannot be started (no command)"
        lines.append(f"worker {worker}: {cores:g} cores, basis {basis}; {start}")
    return "\n".join(lines)


def folder_doubts(configuration: AgentConfiguration) -> Iterator[str]:
    """What is wrong with the folders that the file names, or not there yet."""
    state = configuration.state_dir
    if (fault := unusable(state)) is not None:
        yield f"agent.state_dir: {state} {fault}"
    elif not state.exists():
        yield f"agent.state_dir: {state} does not exist yet; the agent creates it at its start"
    for worker, settings in configuration.workers.items():
        if settings.data_dir is None:
            yield f"workers.{worker}.data_dir: not set, so the free space for its tables is not watched"
        elif not settings.data_dir.is_dir():
            found = "is no folder" if settings.data_dir.exists() else "does not exist"
            yield (
                f"workers.{worker}.data_dir: {settings.data_dir} {found}; it should be the folder where the worker "
                "keeps its tables, because the space of its disk is watched"
            )


def unusable(folder: Path) -> str | None:
    """Why this user can neither write in the folder nor make it; None if that works."""
    if folder.exists() and not folder.is_dir():
        return "is no folder"
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        return f"cannot be made: {there} is no folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return "cannot be written by this user" if there == folder else f"cannot be made by this user in {there}"
    return None


def _describe_disk(disk: DiskSpace | None) -> str:
    if disk is None:
        return "not known (no data_dir of a worker, or it cannot be read)"
    return f"{disk.free_bytes / 1e9:.1f} of {disk.total_bytes / 1e9:.1f} GB free"


def _describe_key(path: Path | None) -> str:
    return "not signed (no [signing])" if path is None else f"signed by key {load_signing_key(path).public.id}"


def _describe_trust(path: Path | None) -> str:
    if path is None:
        return "not verified, anyone who can write to their topic can steer this host (no [trust])"
    return f"verified, trusted keys {', '.join(TrustFile(path).keys)}"
