"""The files of the pages, read and packed once: a view of the console asks for twenty of them."""

import gzip
import hashlib
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
START = "index.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file as it is, and packed by gzip; `mark` = its ETag."""

    kind: str
    content: bytes
    packed: bytes
    mark: str


class Pages:
    """Serves the files of a folder; browsers keep them, and ask each time whether they are still the same."""

    def __init__(self, folder: Path) -> None:
        paths = (path for path in folder.rglob("*") if path.is_file())
        self._files = {f"/{path.relative_to(folder).as_posix()}": _read(path) for path in paths}
        self._files["/"] = self._files[f"/{START}"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.  Raises HTTPException."""
        file = self._files.get(scope["path"])
        if file is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such page")
        if scope["method"] != "GET":
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, "pages can only be read", headers={"allow": "GET"})
        await _answer(file, Headers(scope=scope))(scope, receive, send)


def _read(path: Path) -> File:
    content = path.read_bytes()
    kind = KINDS.get(path.suffix, "text/plain; charset=utf-8")
    packed, mark = gzip.compress(content, mtime=0), f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return File(kind=kind, content=content, packed=packed, mark=mark)


def _answer(file: File, headers: Headers) -> Response:
    told = {"cache-control": "no-cache", "etag": file.mark, "vary": "accept-encoding"}
    if headers.get("if-none-match") == file.mark:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=told)
    if "gzip" in headers.get("accept-encoding", ""):
        return Response(file.packed, media_type=file.kind, headers={**told, "content-encoding": "gzip"})
    return Response(file.content, media_type=file.kind, headers=told)
