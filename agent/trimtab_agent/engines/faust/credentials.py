"""Broker settings of a Faust app, from the same `[kafka]` section that agent and controller use."""

import base64
import json
import ssl
import time
import tomllib
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from aiokafka.abc import AbstractTokenProvider
from faust.auth import Credentials, OAuthCredentials, SASLCredentials, SSLCredentials

from trimtab_agent.engines.faust.waiting import in_own_thread
from trimtab_process.kafka_section import KafkaFile
from trimtab_protocol.messages.codec import CONFIGURATION, converted
from trimtab_protocol.settings.kafka import KafkaSettings, Sasl, Tls, for_faust

TLS_FILES: WeakKeyDictionary[ssl.SSLContext, Tls] = WeakKeyDictionary()
"""Where the contexts come from that were made here: a context itself cannot be given to another process."""
TOKEN_LIMIT_S = 10.0
"""How long the service that issues tokens may take to answer."""


class BadKafkaFile(Exception):
    """The file cannot be used; the message is one line."""


def broker_options(path: Path) -> dict[str, Any]:
    """`broker` and `broker_credentials` for `faust.App(...)`, from the section [kafka] of a TOML file.

    Ignores `client`, whose keys are for librdkafka.  Raises BadKafkaFile.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        settings = converted(document, KafkaFile, defaults=CONFIGURATION).kafka
        return {"broker": for_faust(settings), "broker_credentials": _credentials(settings)}
    except OSError as error:
        raise BadKafkaFile(f"{error.filename or path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise BadKafkaFile(f"{path}: {error}") from error


def _credentials(settings: KafkaSettings) -> Credentials | None:
    context = _context(settings.tls) if settings.tls is not None else None
    if (sasl := settings.sasl) is not None and sasl.token_endpoint is not None:
        return OAuthCredentials(oauth_cb=TokenProvider(sasl, sasl.token_endpoint), ssl_context=context)
    if sasl is not None:
        return SASLCredentials(
            username=sasl.username,
            password=sasl.password.reveal(),
            mechanism=sasl.mechanism.value,
            ssl_context=context,
        )
    return SSLCredentials(context) if context is not None else None


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Gives aiokafka a token for each connection, and asks for a new one after four fifths of its life."""

    def __init__(self, sasl: Sasl, endpoint: str) -> None:
        self._sasl = sasl
        self._endpoint = endpoint
        self._token = ""
        self._renew_at = 0.0

    async def token(self) -> str:
        """A token that is valid.  Raises OSError; aiokafka tries again."""
        if time.monotonic() >= self._renew_at:
            asked_at = time.monotonic()
            self._token, life_s = await in_own_thread(self._ask)
            self._renew_at = asked_at + 0.8 * life_s
        return self._token

    def extensions(self) -> dict[str, str]:
        """What the broker asks for beside the token."""
        return dict(self._sasl.extensions)

    def _ask(self) -> tuple[str, float]:
        """A new token, and for how many seconds it is valid."""
        form = {"grant_type": "client_credentials"} | ({"scope": self._sasl.scope} if self._sasl.scope else {})
        login = base64.b64encode(f"{self._sasl.username}:{self._sasl.password.reveal()}".encode()).decode()
        headers = {"authorization": f"Basic {login}", "accept": "application/json"}
        body = urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(self._endpoint, body, headers)  # noqa: S310 - https, or the loopback
        with urllib.request.urlopen(request, timeout=TOKEN_LIMIT_S) as answer:  # noqa: S310
            try:
                found = json.load(answer)
                return str(found["access_token"]), float(found.get("expires_in", 0.0))
            except (ValueError, TypeError, KeyError) as error:
                raise OSError(f"{self._endpoint}: found no token in its answer: {error!r}") from error


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    TLS_FILES[context] = tls
    return context
