"""A language model that streams its tokens over HTTP as it draws them. Tiny, and with random weights: it says nothing sensible.

    python examples/streaming_llm.py            # or: rankcore run examples/streaming_llm.py:app, and curl -N it

Each request runs token by token, on the replica's event loop, which takes other requests in between. A client that leaves ends
its generation. On a GPU where there is one.
"""

import asyncio
import http.client
import json

import torch
from torch import nn

from executors import ray_gpu as serve

LETTERS = "abcdefghijklmnopqrstuvwxyz ,."
WIDTH, CONTEXT = 32, 64


class TinyModel(nn.Module):
    """One layer of attention over letters."""

    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=64, batch_first=True)
        self.out = nn.Linear(WIDTH, len(LETTERS))

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.out(self.layer(self.letters(tokens) + self.places(places)))[:, -1]


@serve.deployment(max_ongoing_requests=16, ray_actor_options={"num_cpus": 0})
class LanguageModel:
    def __init__(self):
        torch.set_num_threads(1)
        torch.manual_seed(7)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = TinyModel().to(self.device).eval()

    async def __call__(self, request):
        asked = await request.json()
        return self.tokens(str(asked.get("prompt", "")), min(int(asked.get("max_tokens", 32)), 1000))

    async def tokens(self, prompt, max_tokens):
        """The continuation, letter by letter; the same for the same prompt."""
        draw = torch.Generator().manual_seed(sum(map(ord, prompt)))
        context = [LETTERS.index(letter) for letter in prompt.lower() if letter in LETTERS] or [0]
        for _ in range(max_tokens):
            with torch.inference_mode():
                scores = self.model(torch.tensor([context[-CONTEXT:]], device=self.device))[0]
            token = int(torch.multinomial(torch.softmax(scores.cpu(), 0), 1, generator=draw))
            context.append(token)
            yield LETTERS[token]
            await asyncio.sleep(0)  # others may draw theirs


app = LanguageModel.bind()


def stream(port, prompt, max_tokens):
    """The pieces of the response, as they come."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/llm", json.dumps({"prompt": prompt, "max_tokens": max_tokens}))
    response = connection.getresponse()
    assert response.status == 200, response.read()
    while piece := response.read1():
        yield piece.decode()


if __name__ == "__main__":
    PORT = 8017
    serve.start(http_options={"port": PORT}, proxy_location="HeadOnly")
    handle = serve.run(app, route_prefix="/llm")
    by_handle = "".join(handle.options(method_name="tokens", stream=True).remote("hello", 40))
    pieces = list(stream(PORT, "hello", 40))
    print(f"hello|{''.join(pieces)}| came in {len(pieces)} pieces")
    assert "".join(pieces) == by_handle, "the same prompt, the same letters"
    serve.shutdown()
