"""What user code raises is caught as what it is, and as a `RayTaskError`, also behind another deployment."""

from ray import serve
from ray.exceptions import RayTaskError


@serve.deployment
class Broken:
    def __call__(self) -> None:
        raise LookupError("nothing there")


@serve.deployment
class Front:
    def __init__(self, broken) -> None:
        self.broken = broken

    async def __call__(self) -> str:
        try:
            return await self.broken.remote()
        except LookupError as error:
            if isinstance(error, RayTaskError) and "nothing there" in str(error):
                raise KeyError("behind") from error
        return "something else"


def main() -> object:
    handle = serve.run(Front.bind(Broken.bind()), route_prefix=None)
    try:
        handle.remote().result()
    except RayTaskError as error:
        return isinstance(error, KeyError)
    return None


EXPECTED = True
