"""A generator's items come one by one through a handle, from a synchronous method as from an asynchronous one."""

from ray import serve


@serve.deployment
class Words:
    def split(self, text: str):
        yield from text.split()

    async def letters(self, text: str):
        for letter in text:
            yield letter


def main() -> object:
    handle = serve.run(Words.bind(), route_prefix=None).options(stream=True)
    return [list(handle.split.remote("a b c")), list(handle.letters.remote("xyz"))]


EXPECTED = [["a", "b", "c"], ["x", "y", "z"]]
