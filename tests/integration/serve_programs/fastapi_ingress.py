"""A FastAPI application is the ingress: its routes are methods, with typed parameters that are checked."""

import json
import os
from urllib.error import HTTPError
from urllib.request import urlopen

from fastapi import FastAPI
from ray import serve

api = FastAPI()


@serve.deployment
@serve.ingress(api)
class Shop:
    def __init__(self, prices: dict) -> None:
        self.prices = prices

    @api.get("/price/{name}")
    def price(self, name: str, count: int = 1) -> dict:
        return {"price": self.prices[name] * count}


def main() -> object:
    serve.run(Shop.bind({"tea": 3}), route_prefix="/shop")
    with urlopen(os.environ["SERVE_URL"] + "/shop/price/tea?count=4", timeout=30) as answer:
        found = json.loads(answer.read())
    try:
        urlopen(os.environ["SERVE_URL"] + "/shop/price/tea?count=many", timeout=30)
    except HTTPError as error:
        return [found, error.code]
    return None


EXPECTED = [{"price": 12}, 422]
