"""Requests to a REST server: JSON there and back, with the token; what it refuses is raised as the error that it is.

The token goes to the server that the user has named and nowhere else: redirects are not followed.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import attrs

from executors.ray_gpu import errors
from executors.ray_gpu.errors import InvalidCallError, NoAnswerError, NotRunningError

SCHEMES = ("http", "https")
TOKEN, TOKEN_FILE = "RANKCORE_REST_TOKEN", "RANKCORE_REST_TOKEN_FILE"
ANSWER_S = 130.0
"""Longer than the server lets a change take before it says that it goes on."""
BUILT_S = 450.0
"""Likewise where it imports users' code before that."""
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
    return os.environ.get(TOKEN) or None


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
        InvalidCallError: The address is not what it may be.
    """

    def __init__(self, address: str, token: str | None = None) -> None:
        parts = urlsplit(address)
        if parts.scheme not in SCHEMES or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
            raise InvalidCallError(
                f"address must be http://HOST:PORT or https://HOST:PORT of a REST server, got {address!r:.80}"
            )
        self.address = address.rstrip("/")
        self._token = token
        self._opener = urllib.request.build_opener(_NoRedirects)

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
                return RestAnswer(self._read(answer.read(), answer.headers), _revision(answer.headers))
        except urllib.error.HTTPError as error:
            raise self._refused(error, expected) from None
        except TimeoutError:
            raise NoAnswerError(f"{self.address} has not answered within {timeout_s:g} s") from None
        except (urllib.error.URLError, OSError, ValueError) as error:
            if isinstance(getattr(error, "reason", None), TimeoutError):
                raise NoAnswerError(f"{self.address} has not answered within {timeout_s:g} s") from None
            why = " ".join(str(getattr(error, "reason", error)).split())
            raise NotRunningError(
                f"no REST server can be reached at {self.address}: {why}; `rankcore rest` starts one"
            ) from None

    def _read(self, raw: bytes, headers: Message) -> Any:
        if headers.get_content_type() != "application/json":
            raise NotRunningError(f"{self.address} is no REST server of rankcore: `rankcore rest` starts one")
        return json.loads(raw)

    def _refused(self, refusal: urllib.error.HTTPError, expected: str | None) -> errors.RayExecutorError:
        try:
            said = str(json.loads(refusal.read())["error"])
        except (ValueError, KeyError, TypeError, OSError):
            return NotRunningError(
                f"{self.address} is no REST server of rankcore, and answers {refusal.code}: `rankcore rest` starts one"
            )
        if refusal.code == 412 and (revision := _revision(refusal.headers)) is not None:
            return errors.ConflictError(expected or "", revision)
        if refusal.code == 401:
            said = f"{said}: {TOKEN_FILE} names the file that has the token"
        return REFUSALS.get(refusal.code, InvalidCallError)(said)


def _revision(headers: Message) -> str | None:
    found = headers.get("etag")
    return None if found is None else found.removeprefix("W/").strip('"')
