"""`trimtab keys` for hosts: which request counts, and what the status says."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.kafka_record import Headers, Record
from trimtab_controller.cli import main
from trimtab_controller.cli.host_keys import _await_request
from trimtab_controller.cli.operator import says_yes
from trimtab_controller.cli.status import signatures_text
from trimtab_protocol.messages.codec import decoded, encoded
from trimtab_protocol.messages.host_keys import REQUEST_HEADER, EnrollmentRequest, proof_of
from trimtab_protocol.messages.names import NO_EPOCH, HostId, Topics
from trimtab_protocol.messages.status import SignatureStatus, Status
from trimtab_protocol.signing.hosts import HostSigner
from trimtab_protocol.signing.keys import SigningKey

TOPICS = Topics("c")
HOST, TOKEN = HostId("h0"), "what the operator has shown"
KEY, OTHER = SigningKey.generate(), SigningKey.generate()


class Acks:
    """As much of a consumer as is used: these records, and then nothing."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._left = list(records)

    def poll(self, _timeout_s: float) -> Record | None:
        return self._left.pop(0) if self._left else None


def request(token: str = TOKEN, *, by: SigningKey = KEY, marked: bool = True, host: HostId = HOST) -> Record:
    asked = EnrollmentRequest(
        cluster="c", host=host, key=KEY.public.raw, proof=proof_of(token, "c", host, KEY.public.raw)
    )
    value = encoded(asked)
    headers: Headers = [HostSigner(by, host).sign(TOPICS.acks, value)]
    return Record(TOPICS.acks, value, host.encode(), [*headers, *([(REQUEST_HEADER, b"")] if marked else [])])


def found(*records: Record) -> bytes | None:
    consumer: Consumer = Acks(records)  # type: ignore[assignment]
    asked = _await_request(consumer, TOPICS, HOST, TOKEN, float("inf") if records[-1:] == (GOOD,) else 0.0)
    return None if asked is None else asked.key


GOOD = request()


def test_the_request_that_proves_the_token_counts_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    guessed, stolen = request("guess"), request(by=OTHER)
    elsewhere, ack = request(host=HostId("h1")), request(marked=False)
    garbage = Record(TOPICS.acks, b"{}", HOST.encode(), [(REQUEST_HEADER, b"")])

    assert found(guessed, stolen, elsewhere, ack, garbage, GOOD) == KEY.public.raw
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3
    assert told[0] == "ignored a request in the name of h0: it does not prove the token"


def test_after_its_time_a_token_counts_no_more() -> None:
    consumer: Consumer = Acks([GOOD])  # type: ignore[assignment]
    assert _await_request(consumer, TOPICS, HOST, TOKEN, 0.0) is None


def test_without_the_controllers_key_nothing_is_approved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "controller.toml"
    stream = f'[stream]\ncheckpoint_dir = "{tmp_path}"\n'
    config.write_text(f'[controller]\ncluster = "c"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n{stream}')

    assert main(["keys", "hosts", "--config", str(config)]) == 2
    assert "found no section [signing]" in capsys.readouterr().err


STATUS = Status(cluster="c", at=1.0, acting=True, epoch=NO_EPOCH, paused=None, window_end=None, coverage=None)
TOLD = SignatureStatus(
    checking="warn", enrolled=3, unsigned={"trimtab.c.reports.unsigned": 7}, doubted={HostId("h2"): "unsigned"}
)


def test_the_status_says_who_has_not_signed() -> None:
    status = replace(STATUS, signatures=TOLD)

    assert decoded(encoded(status), Status) == status
    assert str(signatures_text(status)) == (
        "warn: 3 hosts have a key; in the last window reports were used that these had not signed: h2 (unsigned); "
        "used without a good signature: trimtab.c.reports.unsigned: 7"
    )
    assert signatures_text(STATUS) is None


@pytest.mark.parametrize("seconds", ["0", "-5", "nan", "inf", "86401", "soon"])
def test_a_token_counts_for_a_time_that_makes_sense(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["keys", "enroll", "h0", "--config", "none.toml", f"--valid={seconds}"])
    assert f"found '{seconds}', expected seconds, above 0 and up to 86400" in capsys.readouterr().err


def test_the_status_says_whose_key_is_revoked() -> None:
    dropped = {HostId("h2"): "unknown_key", HostId("h3"): "unsigned"}
    told = SignatureStatus(checking="enforce", enrolled=2, doubted=dropped, revoked=(HostId("h2"),))
    assert str(signatures_text(replace(STATUS, signatures=told))) == (
        "enforce: 2 hosts have a key; in the last window reports were dropped that these had not signed: "
        "h2 (its key is revoked), h3 (unsigned)"
    )


@pytest.mark.parametrize("command", [["hosts"], ["revoke", "h0"]])
def test_the_cluster_may_be_named_by_the_environment(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TRIMTAB_CONFIG", raising=False)
    assert main(["keys", *command]) == 2
    assert capsys.readouterr().err == "trimtab keys: name the cluster: --config FILE, or TRIMTAB_CONFIG\n"
    monkeypatch.setenv("TRIMTAB_CONFIG", "none.toml")
    assert main(["keys", *command]) == 2
    assert capsys.readouterr().err.startswith("trimtab keys: none.toml: ")


def test_who_cannot_be_asked_approves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert not says_yes("the same? ")
    monkeypatch.setattr("sys.stdin", io.StringIO("Yes\n"))
    assert says_yes("the same? ")
