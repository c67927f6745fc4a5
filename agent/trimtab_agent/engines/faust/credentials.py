"""Broker settings of a Faust app, from the same `[kafka]` section that agent and controller use."""

import ssl
import tomllib
from pathlib import Path
from typing import Any

from faust.auth import Credentials, SASLCredentials, SSLCredentials

from trimtab_process.private_files import read_private
from trimtab_protocol.messages.decode import Fields
from trimtab_protocol.settings.kafka import KafkaSettings, Tls, for_faust, read_kafka


class BadKafkaFile(Exception):
    """The file cannot be used; the message is one line."""


def broker_options(path: Path) -> dict[str, Any]:
    """`broker` and `broker_credentials` for `faust.App(...)`, from the section [kafka] of a TOML file.

    Ignores `client`, whose keys are for librdkafka.  Raises BadKafkaFile.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        settings = read_kafka(Fields(document, "").fields("kafka"), read_private)
        return {"broker": for_faust(settings), "broker_credentials": _credentials(settings)}
    except OSError as error:
        raise BadKafkaFile(f"{error.filename or path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise BadKafkaFile(f"{path}: {error}") from error


def _credentials(settings: KafkaSettings) -> Credentials | None:
    context = _context(settings.tls) if settings.tls is not None else None
    if (sasl := settings.sasl) is not None:
        return SASLCredentials(
            username=sasl.username,
            password=sasl.password.reveal(),
            mechanism=sasl.mechanism.value,
            ssl_context=context,
        )
    return SSLCredentials(context) if context is not None else None


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    return context
