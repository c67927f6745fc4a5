import pytest

from tests.fuzz.fuzzed.samples import SUMS_1
from trimtab_protocol.messages.decode import BadMessage
from trimtab_protocol.messages.names import Topics, parse_key_group, topic_settings


def test_key_groups_are_named_app_operator_partition():
    assert parse_key_group(str(SUMS_1)) == SUMS_1
    arabic, endless = "a/b/\u0663", "a/b/" + "9" * 5000
    for text in ("flights/sums", "flights/sums/x", "flights/sums/-1", "flights/su ms/1", "a/b/999999", arabic, endless):
        with pytest.raises(BadMessage):
            parse_key_group(text)


def test_every_topic_of_a_cluster_is_created_with_its_settings():
    topics = Topics("demo")
    names = {settings.name for settings in topic_settings(topics)}
    assert names == {getattr(topics, name) for name in dir(Topics) if isinstance(getattr(Topics, name), property)}
    with pytest.raises(ValueError, match="cluster name"):
        Topics("a b")


def test_compacted_topics_are_compacted_often_so_that_a_start_reads_little():
    found = {settings.name: settings.configuration for settings in topic_settings(Topics("demo"))}
    compacted = {name for name, keys in found.items() if keys.get("cleanup.policy") == "compact"}
    assert compacted == {f"trimtab.demo.{name}" for name in ("placement", "journal", "intents", "status", "keys")}
    segments = {name: int(keys["segment.bytes"]) for name, keys in found.items() if "segment.bytes" in keys}
    assert segments == dict.fromkeys(compacted | {"trimtab.demo.events", "trimtab.demo.snapshots"}, 16 * 1024 * 1024)
