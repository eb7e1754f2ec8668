"""gRPC: the users' own services on each proxy, handed to replicas as any handle does.

options     what a user can choose
capture     what a generated `add_...Servicer_to_server` would register, without its servicer
service     one call on its way through a proxy; which error is which status
server      grpc.aio on the routers' thread, with health and reflection
"""
