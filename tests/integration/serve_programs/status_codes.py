"""A deployment chooses status and headers by returning a Starlette response; an unknown path is 404, what it raises 500."""

import os
from urllib.error import HTTPError
from urllib.request import urlopen

from ray import serve
from starlette.responses import JSONResponse, PlainTextResponse


@serve.deployment
class Codes:
    def __call__(self, request):
        match request.url.path.rpartition("/")[2]:
            case "made":
                return JSONResponse({"made": True}, status_code=201, headers={"x-kind": "new"})
            case "raises":
                raise ValueError("not this")
        return PlainTextResponse("no tea", status_code=418)


def status_of(path: str) -> object:
    try:
        with urlopen(os.environ["SERVE_URL"] + path, timeout=30) as answer:
            return [answer.status, answer.headers["x-kind"]]
    except HTTPError as error:
        return error.code


def main() -> object:
    serve.run(Codes.bind(), route_prefix="/codes")
    return [status_of("/codes/made"), status_of("/codes/tea"), status_of("/codes/raises"), status_of("/elsewhere")]


EXPECTED = [[201, "new"], 418, 500, 404]
