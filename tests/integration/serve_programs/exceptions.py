"""What user code raises is raised to the caller as what it is."""

from ray import serve


class TooLarge(Exception):
    pass


@serve.deployment
class Strict:
    def __call__(self, value: int) -> int:
        if value > 10:
            raise TooLarge(f"{value} is too large")
        return 10 // value


def raised_by(response) -> str:
    try:
        return str(response.result())
    except TooLarge as error:
        return "TooLarge" if "12 is too large" in str(error) else "no text"
    except ZeroDivisionError:
        return "ZeroDivisionError"


def main() -> object:
    handle = serve.run(Strict.bind(), route_prefix=None)
    return [raised_by(handle.remote(5)), raised_by(handle.remote(0)), raised_by(handle.remote(12))]


EXPECTED = ["2", "ZeroDivisionError", "TooLarge"]
