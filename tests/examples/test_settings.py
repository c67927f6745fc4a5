from pathlib import Path

import pytest

from flights.settings import Settings, from_environment

NEEDED = {"FLIGHTS_BROKER": "127.0.0.1:9", "FLIGHTS_DATA_DIR": "/x", "FLIGHTS_WEB_PORT": "7000"}


def test_settings_come_from_the_environment():
    assert from_environment(NEEDED) == Settings(broker="127.0.0.1:9", data_dir=Path("/x"), web_port=7000)
    more = {**NEEDED, "FLIGHTS_KEY_GROUPS": "8", "FLIGHTS_WORK": "100", "FLIGHTS_COMMIT_S": "2", "FLIGHTS_PLUGIN": "0"}
    more["FLIGHTS_LOCAL"] = "1"
    assert from_environment(more) == Settings(
        broker="127.0.0.1:9", data_dir=Path("/x"), web_port=7000, key_groups=8, work=100, commit_s=2, plugin=False,
        local=True,
    )  # fmt: skip


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_missing_is_named(name: str):
    with pytest.raises(ValueError, match=name):
        from_environment({**NEEDED, name: ""})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("FLIGHTS_WORK", "much", "FLIGHTS_WORK: found 'much'"), ("FLIGHTS_KEY_GROUPS", "0", "out of range")],
)
def test_nonsense_is_refused(name: str, text: str, message: str):
    with pytest.raises(ValueError, match=message):
        from_environment({**NEEDED, name: text})
