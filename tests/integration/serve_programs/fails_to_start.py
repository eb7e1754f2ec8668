"""An application whose `__init__` raises is an error that says why."""

from ray import serve


@serve.deployment(max_constructor_retry_count=1)
class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no such weights")


def main() -> object:
    try:
        serve.run(Broken.bind(), route_prefix=None)
    except Exception as error:
        return [serve.status().applications["default"].status == "DEPLOY_FAILED", "no such weights" in str(error)]
    return None


EXPECTED = [True, True]
IN_RAY_SERVE = [True, False]
WHY = "the error of `run` has the traceback here; there it points to logs"
