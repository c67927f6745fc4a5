"""controller.toml: the sample is read, defaults hold, and every fault names file, key, found and expected."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from trimtab_controller.configuration import Configuration, load
from trimtab_controller.decider.values.scaling import Mode, ScalingSettings
from trimtab_controller.decider.values.settings import Requirements, Settings
from trimtab_controller.execution.disruption import DisruptionSettings
from trimtab_controller.execution.events import ExecutionLimits
from trimtab_controller.security.keys import KeyFiles
from trimtab_process.toml_files import BadConfiguration
from trimtab_protocol.messages.names import AppId
from trimtab_protocol.settings.listen import Listen

SAMPLE = Path(__file__).parents[2] / "deploy" / "samples" / "controller.toml"
ORDERS, OTHER = AppId("orders"), AppId("other")
LEAST = """
[controller]
cluster = "demo"
[kafka]
bootstrap_servers = "127.0.0.1:9092"
[stream]
checkpoint_dir = "/tmp/checkpoints"
"""


def read(tmp_path: Path, text: str) -> Configuration:
    path = tmp_path / "controller.toml"
    path.write_text(text)
    return load(path)


def test_the_sample_shows_the_defaults(tmp_path: Path) -> None:
    sample = SAMPLE.read_text()
    (tmp_path / "controller.password").touch(mode=0o600)
    (tmp_path / "controller.password").write_text("hush\n")
    (tmp_path / "controller-client.key").touch(mode=0o600)
    shown = sample.replace("\n# Only", "\n#Only").replace("# Config", "#Config").replace("/etc/trimtab", str(tmp_path))
    uncommented = "\n".join(line.removeprefix("# ") for line in shown.splitlines())
    least, written = read(tmp_path, sample), read(tmp_path, uncommented)
    assert (least.balance, least.execution) == (Settings(), ExecutionLimits())
    assert least.needs == Requirements(max_age_s=35.0)
    assert least.metrics == Listen(address="127.0.0.1", port=9100)
    limited = replace(  # optional, without defaults
        least.execution,
        disruption=DisruptionSettings(max_paused_s_per_hour=600.0, apps={ORDERS: 60.0}),
        restore_host_bytes_s=20e6,
    )
    assert (written.execution, written.needs) == (limited, least.needs)
    assert written.lease_s == least.lease_s
    assert written.balance == replace(least.balance, remote_tuple_cpu_s=1e-4)  # optional, without a default
    assert replace(written.scaling, apps={}) == least.scaling == ScalingSettings()
    assert written.scaling.of(ORDERS) == ScalingSettings(mode=Mode.ACT, min_workers=4, max_workers=12)
    assert (least.kafka.protocol, written.kafka.protocol, least.signing) == ("PLAINTEXT", "SASL_SSL", None)
    assert written.signing == KeyFiles(key=tmp_path / "controller.pem", trust=tmp_path / "trusted.keys")
    assert (written.stream.window_s, written.stream.embedded) == (least.stream.window_s, least.stream.embedded)


def test_an_app_may_have_a_size_of_its_own(tmp_path: Path) -> None:
    text = """
    [scaling]
    max_workers = 8
    hook = ["/bin/add"]
    [scaling.apps.orders]
    mode = "act"
    min_workers = 3
    hook = []
    max_utilisation = 0.9
    """
    found = read(tmp_path, LEAST + text).scaling
    general = ScalingSettings(max_workers=8, hook=("/bin/add",))
    assert replace(found.of(OTHER), apps={}) == general
    assert found.of(ORDERS) == replace(general, mode=Mode.ACT, min_workers=3, hook=(), max_utilisation=0.9)
    assert found.own(ORDERS) == ("hook", "max_utilisation = 0.9", "min_workers = 3", 'mode = "act"')
    assert found.own(OTHER) == ()


def test_nothing_is_forecast_unless_it_is_wanted(tmp_path: Path) -> None:
    assert read(tmp_path, LEAST).forecast.mode is Mode.OFF
    assert read(tmp_path, LEAST + '[forecast]\nmode = "advise"').forecast.mode is Mode.ADVISE
    with pytest.raises(BadConfiguration, match=r"forecast.mode: found 'on', expected one of off, advise, act"):
        read(tmp_path, LEAST + '[forecast]\nmode = "on"')
    with pytest.raises(BadConfiguration, match=r"forecast.step_s: found a whole number, expected no such field"):
        read(tmp_path, LEAST + "[forecast]\nstep_s = 60")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('mode = "on"', "scaling.mode: found 'on', expected one of off, advise, act"),
        ("min_utilisation = 0.8", "scaling: found 'settings that contradict each other', expected min_utilisation"),
        ("min_workers = 5\nmax_workers = 4", "min_workers 5 is above max_workers 4"),
        ('hook = "add"', "scaling.hook: found a string, expected an array"),
        ("apps.orders.min_worker = 2", "scaling.apps.orders.min_worker: found a whole number, expected no such field"),
        ("apps.orders.mode = 'on'", "scaling.apps.orders.mode: found 'on', expected one of off, advise, act"),
        (
            "max_workers = 8\napps.orders.min_workers = 9",
            "scaling.apps.orders: found 'settings that contradict each other', expected min_w",
        ),
        ("apps.orders.apps.x.mode = 'act'", "scaling.apps.orders.apps: found an object, expected no such field"),
        ("apps.orders.eu.mode = 'act'", "scaling.apps.orders.eu: found an object, expected no such field"),
        ("apps.'or ders'.mode = 'act'", "scaling.apps: found 'or ders', expected a name of letters"),
        ("apps.orders = 4", "scaling.apps.orders: found a whole number, expected an object"),
    ],
)
def test_a_fault_in_the_size_of_apps_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        read(tmp_path, f"{LEAST}\n[scaling]\n{text}")
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "controller: missing, expected an object"),
        ("[controller", "not TOML"),
        (LEAST.replace('"demo"', '"de mo"'), "controller.cluster: found 'de mo', expected a name"),
        (LEAST + "[balance]\nmax_migrations = 0\n", "balance.max_migrations: found 0, expected 1 to"),
        (LEAST + "[balance]\nmax_migrations = 1001\n", "balance.max_migrations: found 1001, expected 1 to 1000"),
        (LEAST + "[balance]\ncatch_up_s = 5\n", "balance.catch_up_s: found 5, expected a finite number, 10 to 86400"),
        (LEAST + "[balance]\nload_distance = nan\n", "balance.load_distance: found nan, expected a finite number"),
        (LEAST + "[balance]\nload_distanc = 1.0\n", "balance.load_distanc: found a number, expected no such field"),
        (LEAST + '[execution]\nguard = "on"\n', "execution.guard: found 'on', expected one of off, stop, roll-back"),
        (LEAST + "[execution]\nattempts = 3\n", "execution.attempts: found a whole number, expected no such field"),
        (LEAST + '[signing]\nhost_signatures = "warn"\n', "signing.key_file: missing, expected a string"),
        (LEAST + '[metrics]\nlisten = "9100"\n', "metrics.listen: found '9100', expected address:port"),
        (LEAST + "[mertics]\n", "mertics: found an object, expected no such field"),
        (LEAST.replace("[stream]", "[streams]"), "stream: missing, expected an object"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'controller.toml'}: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        LEAST.replace("[stream]", 'password = "hunter2"\n[stream]'),
        LEAST + 'spark = { "ssl.keyPassword" = "hunter2" }\n',
        LEAST + 'spark = { "spark.ssl.keyPassword" = ["hunter2"] }\n',
        LEAST + 'spark = "spark.ssl.keyPassword=hunter2"\n',
        LEAST + '[signing]\nkey = "hunter2"\nkey_file = "k"\ntrust_file = "t"\n',
        LEAST + '[signing]\nkey_file = """-----BEGIN\nhunter2"""\ntrust_file = "t"\n',
        LEAST + '[signing]\nkey_file = "k"\ntrust_file = "./k"\n',
    ],
)
def test_no_fault_shows_what_may_be_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        read(tmp_path, text)
    assert ": found " in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"absent.toml: No such file"):
        load(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[disruption]\nmax_paused_s_per_hour = 0", "disruption.max_paused_s_per_hour: found 0, expected"),
        ('[disruption.apps]\n"orders" = 60.0', "disruption.apps.orders: found a number, expected an object"),
        ('[disruption.apps]\n"orders" = { max_pauses = 1 }', "disruption.apps.orders.max_paused_s_per_hour"),
    ],
)
def test_a_disruption_budget_that_cannot_be_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadConfiguration, match=re.escape(said)):
        read(tmp_path, LEAST + text)
