"""Requests to a REST server: JSON there and back, with the token; what it refuses is raised as the error that it is.

The token goes to the server that the user has named and nowhere else: redirects are not followed.
"""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import attrs
import msgspec

from executors.ray_gpu import errors
from executors.ray_gpu.errors import InvalidCallError, NoAnswerError, NotRunningError
from executors.ray_gpu.http.access import is_loopback, is_plain

T = TypeVar("T")

SCHEMES = ("http", "https")
TOKEN, TOKEN_FILE = "RANKCORE_REST_TOKEN", "RANKCORE_REST_TOKEN_FILE"
ANSWER_S = 130.0
"""Longer than the server lets a change take before it says that it goes on."""
BUILT_S = 450.0
"""Likewise where it imports users' code before that."""
PIECE_BYTES = 1 << 16
REFUSALS: dict[int, type[errors.RayExecutorError]] = {
    401: NotRunningError,
    403: NotRunningError,
    404: errors.UnknownNameError,
    409: errors.NameInUseError,
    422: InvalidCallError,
    503: NotRunningError,
    504: NoAnswerError,
}


def token_said() -> str | None:
    """The token that requests are to have; None: none.

    Raises:
        InvalidCallError: The file that is named cannot be read.
    """
    if file := os.environ.get(TOKEN_FILE):
        try:
            return (Path(file).expanduser().read_text().splitlines() or [""])[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidCallError(
                f"{TOKEN_FILE}: {file} cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from None
    return os.environ.get(TOKEN, "").strip() or None


@attrs.frozen
class RestAnswer:
    """What came back.

    Attributes:
        revision: In force (`ETag`); None: the answer has none.
    """

    body: Any
    revision: str | None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """None: it is an error."""
        return


class RestClient:
    """Asks one server.

    Args:
        address: `http://host:port` or `https://host:port`.
        token: None: none is sent.

    Raises:
        InvalidCallError: The address, or the token, is not what it may be.
    """

    def __init__(self, address: str, token: str | None = None) -> None:
        host = _host_of(address)
        if host is None:
            raise InvalidCallError(
                f"address must be http://HOST:PORT or https://HOST:PORT of a REST server, got {address!r:.80}"
            )
        if token is not None and not is_plain(token):
            raise InvalidCallError(
                f"the token must be ASCII characters without blanks, got {len(token)} characters of which some are not"
            )
        self.address = address.rstrip("/")
        self._token = token
        around = [urllib.request.ProxyHandler({})] if is_loopback(host) else []  # a proxy's own machine is another one
        self._opener = urllib.request.build_opener(_NoRedirects, *around)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        expected: str | None = None,
        timeout_s: float = ANSWER_S,
    ) -> RestAnswer:
        """One request.

        Args:
            expected: The revision that is to be in force until then; None: any may be.

        Raises:
            NotRunningError: Nobody is there who answers, or lets this one in.
            RayExecutorError: What the server has refused, with its words.
        """
        target = self.address + path + (f"?{urlencode(query)}" if query else "")
        request = urllib.request.Request(target, None if body is None else json.dumps(body).encode(), method=method)
        if body is not None:
            request.add_header("content-type", "application/json")
        if self._token is not None:
            request.add_header("authorization", f"Bearer {self._token}")
        if expected is not None:
            request.add_header("if-match", f'"{expected}"')
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                raw = _whole(answer, time.monotonic() + timeout_s)
                return RestAnswer(self._read(raw, answer.headers), _revision(answer.headers))
        except urllib.error.HTTPError as error:
            raise self._refused(error, expected) from None
        except TimeoutError:
            raise NoAnswerError(f"{self.address} has not answered within {timeout_s:g} s") from None
        except HTTPException as error:
            raise self._not_one(f", but answers {_one_line(error)}") from None
        except (urllib.error.URLError, OSError, ValueError) as error:
            if isinstance(getattr(error, "reason", None), TimeoutError):
                raise NoAnswerError(f"{self.address} has not answered within {timeout_s:g} s") from None
            raise NotRunningError(
                f"no REST server can be reached at {self.address}: {_one_line(error)}; `rankcore rest` starts one"
            ) from None

    def read(self, answer: RestAnswer, kind: type[T]) -> T:
        """What came back, as it is to be.

        Raises:
            NotRunningError: It is something else.
        """
        try:
            return msgspec.convert(answer.body, kind)
        except msgspec.ValidationError as error:
            raise self._not_one(f" of this release, and answers otherwise: {error}") from None

    def _read(self, raw: bytes, headers: Message) -> Any:
        if headers.get_content_type() != "application/json":
            raise self._not_one()
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            raise self._not_one(", but answers what is not JSON") from None

    def _not_one(self, but: str = "") -> NotRunningError:
        return NotRunningError(f"{self.address} is no REST server of rankcore{but}: `rankcore rest` starts one")

    def _refused(self, refusal: urllib.error.HTTPError, expected: str | None) -> errors.RayExecutorError:
        try:
            said = str(json.loads(refusal.read())["error"])
        except (ValueError, KeyError, TypeError, OSError, HTTPException, RecursionError):
            return self._not_one(f", and answers {refusal.code}")
        if refusal.code == 412 and (revision := _revision(refusal.headers)) is not None:
            return errors.ConflictError(expected or "", revision)
        if refusal.code == 401:
            said = f"{said}: {TOKEN_FILE} names the file that has the token"
        return REFUSALS.get(refusal.code, InvalidCallError)(said)


def _revision(headers: Message) -> str | None:
    found = headers.get("etag")
    return None if found is None else found.removeprefix("W/").strip('"')


def _whole(answer: Any, deadline: float) -> bytes:
    """The body; a socket's time-out is for each of its pieces alone."""
    found, wanted = bytearray(), answer.length
    while (wanted is None or len(found) < wanted) and (piece := answer.read1(PIECE_BYTES)):
        found += piece
        if time.monotonic() > deadline:
            raise TimeoutError
    if wanted is not None and len(found) < wanted:
        raise IncompleteRead(bytes(found), wanted - len(found))
    return bytes(found)


def _one_line(error: Exception) -> str:
    return " ".join(str(getattr(error, "reason", error)).split())[:200]


def _host_of(address: str) -> str | None:
    """The host of a server's address; None: it is none."""
    try:
        parts = urlsplit(address)
        is_one = parts.scheme in SCHEMES and parts.port != 0 and not (parts.query or parts.fragment or "@" in parts.netloc)
    except ValueError:  # of brackets or the port
        return None
    return parts.hostname if is_one and address.isprintable() and " " not in address else None
