"""An application that is run again under its name takes the place of the one before."""

from ray import serve


def version_of(text: str):
    @serve.deployment(name="Model")
    class Model:
        def __call__(self) -> str:
            return text

    return Model


def main() -> object:
    first = serve.run(version_of("old").bind(), route_prefix=None).remote().result()
    return [first, serve.run(version_of("new").bind(), route_prefix=None).remote().result()]


EXPECTED = ["old", "new"]
