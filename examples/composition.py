"""Deployments that call each other: responses are handed on as arguments, and nobody waits in between.

    python examples/composition.py

A question is looked up and translated at the same time, by two deployments; a third writes the answer from both. The ingress
starts all three calls at once, though the last one needs what the first two come to.
"""

from typing import ClassVar

from executors import ray_gpu as serve

SMALL = {"ray_actor_options": {"num_cpus": 0}}


@serve.deployment(num_replicas=2, **SMALL)
class Search:
    facts: ClassVar = {"rank": "a number from 0 to N-1", "world size": "how many there should be"}

    async def __call__(self, question):
        return self.facts.get(question, "nobody knows")


@serve.deployment(**SMALL)
class Translate:
    words: ClassVar = {"rank": "Rang", "world size": "Weltgröße"}

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.01)
    async def __call__(self, questions):
        return [self.words.get(question, question) for question in questions]


@serve.deployment(**SMALL)
def write(word, fact):
    return f"{word}: {fact}"


@serve.deployment(max_ongoing_requests=100, **SMALL)
class Answer:
    def __init__(self, search, translate, write):
        self.search, self.translate, self.write = search, translate, write

    async def __call__(self, question):
        return await self.write.remote(self.translate.remote(question), fact=self.search.remote(question))


app = Answer.bind(Search.bind(), Translate.bind(), write.bind())

if __name__ == "__main__":
    handle = serve.run(app)
    responses = {question: handle.remote(question) for question in ("rank", "world size", "epoch")}
    for question, response in responses.items():
        print(f"{question} -> {response.result(timeout_s=60)}")
    serve.shutdown()
