"""HTTP: a proxy on each node that should have one takes requests and websockets, and hands them to replicas as any handle does.

options        what a user can choose
ingress        `@ingress(app)`: a FastAPI, Starlette or other ASGI application in front of a class
proxy          the proxy's actor: uvicorn on the routers' thread
proxy_app      what uvicorn calls: routes, limits, health
exchange       one request or websocket on its way through a proxy
protocol       uvicorn's parser, with bounds on what a client may send before it is a request
refusals       which error is which status
lifespan       start-up and shutdown of the application, in the replica
replica_side   the other end: runs the application, or turns what a method returns into a response
keeper         in the controller: which proxies there are, and another one at once where one has ended
"""
