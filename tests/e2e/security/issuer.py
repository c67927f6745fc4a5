"""A service that issues signed tokens to clients that know their secret (OpenID Connect, client credentials)."""

import base64
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from tests.e2e.security.authorizing import AUDIENCE
from trimtab_protocol.settings.kafka import Secret

LIFE_S = 20
"""So short that clients renew their tokens within a test."""


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Issuer:
    """Listens on the loopback while the context is open."""

    def __init__(self, clients: Mapping[str, Secret]) -> None:
        self._clients = clients
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.issued: list[str] = []
        """The clients that have had tokens, in this order."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(issuer.keys())

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                client, _, secret = base64.b64decode(self.headers["authorization"].split()[1]).decode().partition(":")
                known = issuer._clients.get(client) == Secret(secret)
                self._answer(issuer.issue(client) if known else {"error": "invalid_client"}, 200 if known else 401)

            def _answer(self, found: Mapping[str, object], code: int = 200) -> None:
                body = json.dumps(found).encode()
                self.send_response(code)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def keys(self) -> dict[str, object]:
        """The public key, as JWKS."""
        numbers = self._key.public_key().public_numbers()
        n, e = (_text(each.to_bytes((each.bit_length() + 7) // 8, "big")) for each in (numbers.n, numbers.e))
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": n, "e": e}]}

    def issue(self, client: str) -> dict[str, object]:
        """A token for a client."""
        self.issued.append(client)
        now = int(time.time())
        head = {"alg": "RS256", "typ": "JWT", "kid": "1"}
        body = {"sub": client, "aud": AUDIENCE, "iat": now, "exp": now + LIFE_S, "scope": "kafka"}
        signed = ".".join(_text(json.dumps(each).encode()) for each in (head, body))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        return {"access_token": f"{signed}.{_text(signature)}", "token_type": "Bearer", "expires_in": LIFE_S}

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
