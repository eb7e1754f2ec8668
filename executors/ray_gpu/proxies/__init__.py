"""Proxies: the actors that take requests from outside, HTTP and gRPC, one on each node that should have one.

options   what they serve
proxy     the actor
keeper    in the controller: which proxies there are, and another one at once where one has ended
info      what `status()` shows
"""
