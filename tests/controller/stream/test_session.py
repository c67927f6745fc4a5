"""The keys that the stream's JVM starts with."""

import pytest

from trimtab_controller.stream.session import keys_at_start

QUICK = "-XX:TieredStopAtLevel=1"


@pytest.mark.parametrize(
    ("master", "small", "quick"),
    [("local[2]", True, True), ("local[2]", False, False), ("spark://127.0.0.1:7077", True, False)],
)
def test_only_the_jvm_of_a_small_fleet_does_without_the_optimising_compiler(
    master: str, small: bool, quick: bool
) -> None:
    keys = keys_at_start({"spark.master": master, "spark.jars": ""}, ["-XX:SharedArchiveFile=a b"], small=small)
    options = keys["spark.driver.extraJavaOptions"]
    assert (QUICK in options) is quick
    assert '"-XX:SharedArchiveFile=a b"' in options
    assert "-Xss16m" in options


def test_the_jvm_of_a_local_master_needs_no_name_of_the_machine() -> None:
    local = keys_at_start({"spark.master": "local[1]", "spark.jars": ""}, [], small=True)
    assert local["spark.driver.host"] == local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local["spark.authenticate"] == "true", "other users of the machine reach its ports"
    assert "spark.driver.host" not in keys_at_start({"spark.master": "yarn", "spark.jars": ""}, [], small=True)


def test_the_users_jars_replace_those_of_the_connector() -> None:
    assert "spark.jars" not in keys_at_start({"spark.master": "yarn", "spark.jars.packages": "a:b:1"}, [], small=True)
