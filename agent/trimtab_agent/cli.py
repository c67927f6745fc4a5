"""`trimtab-agent`: run the agent, or check its configuration."""

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from trimtab_agent.configuration import Configuration, ConfigurationError, load_configuration
from trimtab_agent.daemon import StartError, run_agent
from trimtab_agent.kafka_link import check_client
from trimtab_agent.logs import log_to_stderr
from trimtab_agent.sampler.readings import find_limits, find_quotas
from trimtab_process.trust_file import TrustFile
from trimtab_protocol.signing.keys import BadKey

BAD_CONFIGURATION = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is one of those below the help."""
    options = _parser().parse_args(arguments)
    try:
        configuration = load_configuration(options.config)
        check_client(configuration.kafka)
    except ConfigurationError as exc:
        print(f"{options.config}: {exc}", file=sys.stderr)
        return BAD_CONFIGURATION
    if options.command == "check":
        try:
            print(describe(configuration))
        except BadKey as exc:
            print(f"{options.config}: trust.file: {exc}", file=sys.stderr)
            return BAD_CONFIGURATION
        return 0
    log_to_stderr()
    try:
        run_agent(configuration)
    except StartError as exc:
        logging.getLogger(__name__).error("%s", exc)
        return 1
    return 0


def describe(configuration: Configuration) -> str:
    """What the agent would do with this configuration here, and what its figures would be relative to."""
    quotas = find_quotas()
    limits = find_limits(quotas, configuration.cores)
    memory = f"{quotas.memory.limit:.0f} bytes by cgroup" if quotas.memory else "no quota"
    lines = [
        f"cluster {configuration.cluster}, host {configuration.host}, a report every {configuration.interval_s:g} s",
        f"capacity of the host: {limits.cores:g} cores, basis {limits.basis}; memory: {memory}",
    ]
    lines.append(f"commands: {_describe_trust(configuration.trust)}")
    for worker, settings in configuration.workers.items():
        basis = "config" if settings.capacity else limits.basis
        cores = settings.capacity or min(1.0, limits.cores)
        start = "can be started" if settings.command else "cannot be started (no command)"
        lines.append(f"worker {worker}: {cores:g} cores, basis {basis}; {start}")
    return "\n".join(lines)


def _describe_trust(path: Path | None) -> str:
    if path is None:
        return "not verified, whoever can write to their topic is obeyed (no [trust])"
    return f"verified, trusted keys {', '.join(TrustFile(path).keys)}"


def _parser() -> argparse.ArgumentParser:
    epilog = (
        "Exit code 0: ended in order; 1: a fault while running; 2: wrong usage, or a configuration that cannot be used."
    )
    parser = argparse.ArgumentParser(prog="trimtab-agent", description=__doc__, epilog=epilog)
    parser.add_argument("--version", action="version", version=f"trimtab-agent {version('trimtab')}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("run", "run until SIGTERM"), ("check", "check the configuration and say what it means here")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--config", type=Path, required=True, metavar="FILE", help="TOML, see agent.sample.toml")
    return parser


if __name__ == "__main__":
    sys.exit(main())
