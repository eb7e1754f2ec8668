"""A method of a gRPC service is answered by the method of that name, streams of requests and of answers included."""

import os

import grpc
from ray import serve
from ray.serve.generated import serve_pb2, serve_pb2_grpc  # the service that Ray ships


@serve.deployment
class Service:
    def __call__(self, request):
        return serve_pb2.UserDefinedResponse(greeting=f"hello {request.name}", num_x2=request.num * 2)

    async def ClientStreaming(self, requests):
        names = [each.name async for each in requests]
        return serve_pb2.UserDefinedResponse(greeting=" ".join(names), num_x2=len(names))

    async def BidiStreaming(self, requests):
        async for each in requests:
            yield serve_pb2.UserDefinedResponse(greeting=each.name.upper())

    def Streaming(self, request):
        for number in range(request.num):
            yield serve_pb2.UserDefinedResponse(greeting=str(number), num_x2=number)


def main() -> object:
    serve.run(Service.bind(), name="grpc", route_prefix="/grpc")
    with grpc.insecure_channel(os.environ["SERVE_GRPC"]) as channel:
        stub = serve_pb2_grpc.UserDefinedServiceStub(channel)
        metadata = (("application", "grpc"),)
        answer = stub.__call__(serve_pb2.UserDefinedMessage(name="ann", num=1), metadata=metadata, timeout=30)
        items = stub.Streaming(serve_pb2.UserDefinedMessage(num=3), metadata=metadata, timeout=30)
        messages = [serve_pb2.UserDefinedMessage(name=name) for name in ("a", "b")]
        joined = stub.ClientStreaming(iter(messages), metadata=metadata, timeout=30)
        both = stub.BidiStreaming(iter(messages), metadata=metadata, timeout=30)
        found = [answer.greeting, answer.num_x2, [each.num_x2 for each in items]]
        return [*found, joined.greeting, joined.num_x2, [each.greeting for each in both]]


EXPECTED = ["hello ann", 2, [0, 1, 2], "a b", 2, ["A", "B"]]
