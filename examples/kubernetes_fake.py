"""A few lines that answer as Kubernetes' API server and kubelet do, as far as `embed_in_kubernetes.py` asks: no cluster.

Pods, nodes and ConfigMaps by their paths, resourceVersion with conflicts, merge patches, finalizers, deletion with
preconditions and a grace period, a watch that ends with 410 where it has missed something. A pod runs as soon as it is made, in
a thread; one that is killed cannot reach the API any more, whatever its thread still does.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, urlsplit

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

NODES = ("n1", "n2")
NOW = "2026-01-01T00:00:00Z"


class Refusal(Exception):
    """What is answered with a Status."""

    def __init__(self, code: int, reason: str) -> None:
        self.code, self.body = code, {"kind": "Status", "code": code, "reason": reason, "message": reason}


class Server(ThreadingHTTPServer):
    """Clients may hang up."""

    daemon_threads = True

    def handle_error(self, *_) -> None:
        """Nobody is there to be told."""


class FakeCluster:
    """The store, the kubelet, and a server of them at `url`. `entrypoint(api, name, terminate)` is what a container runs."""

    def __init__(self, entrypoint) -> None:
        self.entrypoint, self.changed = entrypoint, threading.Condition(threading.RLock())
        self.objects, self.log, self.versions, self.compacted = {}, [], count(1), 0
        self.expired = 0  # watches that were ended with 410
        self.running = {}  # of each pod what its SIGTERM is
        for name in NODES:
            self.put(("nodes", name), {"metadata": {"name": name}})
        self.server = Server(("127.0.0.1", 0), type("Handler", (Handler,), {"cluster": self}))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> "FakeCluster":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        for terminate in self.running.values():
            terminate.set()
        self.running.clear()
        self.server.shutdown()
        self.server.server_close()

    # -- the store

    def put(self, key, found, kind="MODIFIED") -> dict:
        with self.changed:
            version = next(self.versions)
            found = {**found, "metadata": {**found["metadata"], "resourceVersion": str(version)}}
            over = "deletionTimestamp" in found["metadata"] and not found["metadata"].get("finalizers") and ended(found)
            if over:
                self.objects.pop(key, None)
            else:
                self.objects[key] = found
            self.log.append((version, key[0], "DELETED" if over else kind, found))
            self.changed.notify_all()
        return found

    def get(self, key) -> dict:
        if key not in self.objects:
            raise Refusal(404, "NotFound")
        return self.objects[key]

    def compact(self) -> None:
        """Forget what has changed so far."""
        with self.changed:
            self.compacted = next(self.versions)
            self.log.clear()

    # -- the kubelet

    def run(self, key) -> None:
        name, terminate = key[1], threading.Event()
        self.running[name] = terminate
        pod = client.ApiClient(client.Configuration(host=self.url), header_name="X-Pod", header_value=name)
        try:
            message = self.entrypoint(client.CoreV1Api(pod), name, terminate)
        except (ApiException, HTTPError):  # it was killed
            message = "cannot reach the API"
        self.end(key, {"exitCode": int(bool(message)), **({"message": message} if message else {})})

    def end(self, key, terminated) -> None:
        """Its container has ended, if it has not before."""
        with self.changed:
            found = self.objects.get(key)
            if found is not None and not ended(found):
                self.running.pop(key[1], threading.Event()).set()
                self.put(key, {**found, "status": status({"terminated": terminated})})

    def kill(self, name) -> None:
        """As the OOM killer does; nobody is told but by the pod's status."""
        self.end(("pods", name), {"exitCode": 137})

    def lose_node(self, name) -> None:
        """As where a machine is gone and its object was deleted: the collector of pods has those fail that were bound to it."""
        with self.changed:
            self.objects.pop(("nodes", name))
            for key, found in [*self.objects.items()]:
                if key[0] == "pods" and found["spec"]["nodeName"] == name:
                    self.running.pop(key[1], threading.Event()).set()
                    found = {**found, "metadata": {**found["metadata"], "deletionTimestamp": NOW}}
                    self.put(key, {**found, "status": {**found["status"], "phase": "Failed"}})

    # -- the verbs

    def create(self, kind, body) -> dict:
        key = (kind, body["metadata"]["name"])
        with self.changed:
            if key in self.objects:
                raise Refusal(409, "AlreadyExists")
            if kind == "pods":
                used = [each["spec"]["nodeName"] for (of, _), each in self.objects.items() if of == "pods"]
                nodes = [each for of, each in self.objects if of == "nodes"]
                body["spec"].setdefault("nodeName", min(nodes, key=used.count))
                body["status"] = status({"running": {}})
            made = self.put(key, body, "ADDED")
        if kind == "pods":
            threading.Thread(target=self.run, args=(key,), daemon=True).start()
        return made

    def replace(self, key, body, merge=False) -> dict:
        with self.changed:
            found = self.get(key)
            said = body.get("metadata", {}).get("resourceVersion")
            if said is not None and said != found["metadata"]["resourceVersion"]:
                raise Refusal(409, "Conflict")
            return self.put(key, merged(found, body) if merge else body)

    def delete(self, key, body, grace_s) -> dict:
        with self.changed:
            found = self.get(key)
            said = (body.get("preconditions") or {}).get("resourceVersion")
            if said is not None and said != found["metadata"]["resourceVersion"]:
                raise Refusal(409, "Conflict")
            about = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": int(grace_s[0])}
            found = self.put(key, {**found, "metadata": {**found["metadata"], **about}})
            self.running.get(key[1], threading.Event()).set()
        killing = threading.Timer(float(grace_s[0]), self.kill, [key[1]])
        killing.daemon = True
        killing.start()
        return found

    def listed(self, kind) -> dict:
        with self.changed:
            items = [each for (of, _), each in sorted(self.objects.items()) if of == kind]
            return {"metadata": {"resourceVersion": str(next(self.versions))}, "items": items}

    def watched(self, kind, since, until):
        """Each change after a version, as it comes; None: nothing for now."""
        while time.monotonic() < until:
            with self.changed:
                if since < self.compacted:
                    self.expired += 1
                    yield {"type": "ERROR", "object": Refusal(410, "Expired").body}
                    return
                new = [entry for entry in self.log if entry[0] > since]
                if not new:
                    self.changed.wait(0.05)
            for version, of, what, found in new:
                since = version
                if of == kind:
                    yield {"type": what, "object": found}


def status(state) -> dict:
    """Of a pod with one container."""
    about = {"name": "replica", "image": "", "imageID": "", "ready": "running" in state, "restartCount": 0}
    return {"phase": "Running" if "running" in state else "Failed", "containerStatuses": [{**about, "state": state}]}


def ended(found) -> bool:
    """Whether all its containers have."""
    return found.get("status", {}).get("phase", "Failed") == "Failed"


def merged(old, new):
    """A JSON merge patch."""
    if not isinstance(new, dict):
        return new
    old = old if isinstance(old, dict) else {}
    both = {**old, **{key: merged(old.get(key), each) for key, each in new.items()}}
    return {key: each for key, each in both.items() if each is not None}


class Handler(BaseHTTPRequestHandler):
    """The paths, of any namespace."""

    cluster: FakeCluster
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        kind, name = [*path.split("/")[3 if path.startswith("/api/v1/nodes") else 5 :], None][:2]
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}") if length else {}
        verbs = {
            "GET": lambda: self.cluster.get((kind, name)) if name else self.cluster.listed(kind),
            "POST": lambda: self.cluster.create(kind, body),
            "PUT": lambda: self.cluster.replace((kind, name), body),
            "PATCH": lambda: self.cluster.replace((kind, name), body, merge=True),
            "DELETE": lambda: self.cluster.delete((kind, name), body, query.get("gracePeriodSeconds")),
        }
        if "watch" in query:
            return self.stream(kind, int(query["resourceVersion"][0]), float(query.get("timeoutSeconds", ["5"])[0]))
        try:
            if self.headers["X-Pod"] not in (None, *self.cluster.running):
                raise Refusal(401, "Unauthorized")
            code, found = 200, verbs[self.command]()
        except Refusal as refusal:
            code, found = refusal.code, refusal.body
        text = json.dumps(found).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def stream(self, kind, since, timeout_s) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in self.cluster.watched(kind, since, time.monotonic() + timeout_s):
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *_) -> None:
        """Nothing."""
