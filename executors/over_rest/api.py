"""What a user asks of a cluster through its REST server: methods with the names of `executors.ray_gpu`'s functions."""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from executors.deployment_ids import meant_by, split
from executors.over_rest.client import ANSWER_S, BUILT_S, RestAnswer, RestClient
from executors.ray_gpu.errors import InvalidCallError, NotRunningError, UnknownNameError, not_one
from executors.ray_gpu.overview import CordonedNode, Status
from rankcore.cluster import ClusterPlan
from rankcore.residency.defragmentation import Proposal

if TYPE_CHECKING:
    from executors.log_lines import LogLine

APPLICATIONS = "/api/serve/applications/"
LOOK_EVERY_S = 0.2


class RestApi:
    """Of one server, which is that of one namespace: any other that is named is refused."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    # -- what there is

    def status(self, *, namespace: str | None = None, timeout_s: float = ANSWER_S) -> Status:
        """What runs, and how it is; of epoch 0, and empty, where no controller runs.

        Raises:
            NotRunningError: The server cannot be reached.
        """
        details = self._client.read(self._client.ask("GET", APPLICATIONS, timeout_s=timeout_s), dict[str, Any])
        if not details.get("controller_info"):
            return Status.of_nothing(namespace or "")
        found = self._client.read(self._client.ask("GET", "/api/v1/status", timeout_s=timeout_s), Status)
        if namespace not in (None, found.namespace):
            raise NotRunningError(f"{self._client.address} serves namespace {found.namespace!r}, and not {namespace!r}")
        return found

    def config_in_force(self, *, namespace: str | None = None) -> dict[str, Any]:
        """What is in force, as a file of applications says it."""
        self._check(namespace)
        return self._client.read(self._client.ask("GET", "/api/v1/config"), dict[str, Any])

    def controller_health(self, *, namespace: str | None = None) -> dict[str, Any]:
        """How the controller keeps up."""
        self._check(namespace)
        return self._client.read(self._client.ask("GET", "/api/v1/controller-health"), dict[str, Any])

    def propose_defragmentation(self, name: str | None = None, *, namespace: str | None = None) -> Proposal:
        """Moves that would let weights fit. Nothing is moved."""
        self._check(namespace)
        query = {} if name is None else {"deployment": name}
        return self._client.read(self._client.ask("GET", "/api/v1/defragmentation", query=query), Proposal)

    # -- what is wanted

    def plan(self, config: dict[str, Any], how: dict[str, str]) -> tuple[ClusterPlan, str | None]:
        """What a config would bring, and the revision for which that holds."""
        answer = self._client.ask("POST", "/api/v1/plan", config, how, timeout_s=BUILT_S)
        return self._client.read(answer, ClusterPlan), answer.revision

    def put(self, config: dict[str, Any], how: dict[str, str], expected: str | None) -> str | None:
        """Bring applications to a config; the revision that this has brought."""
        return self._client.ask("PUT", APPLICATIONS, config, how, expected, BUILT_S).revision

    def scale(self, name: str, num_replicas: int, *, stop_first: Iterable[str] = (), namespace: str | None = None) -> None:
        """As `executors.ray_gpu.scale`; so are all that follow."""
        self._of_deployment("scale", name, namespace, target_num_replicas=num_replicas, stop_first=list(stop_first))

    def restart(self, name: str, *, token: str | None = None, namespace: str | None = None) -> None:
        """Replace every replica once."""
        self._of_deployment("restart", name, namespace, token=token)

    def pause(self, name: str, *, namespace: str | None = None) -> None:
        """Let an update reach no further rank."""
        self._of_deployment("pause", name, namespace)

    def promote(self, name: str, replicas: int | str = "100%", *, namespace: str | None = None) -> None:
        """Let an update reach so many replicas in all."""
        self._of_deployment("promote", name, namespace, replicas=replicas)

    def resume(self, name: str, *, namespace: str | None = None) -> None:
        """Let an update reach all ranks."""
        self._of_deployment("resume", name, namespace)

    def rollback(self, name: str, *, namespace: str | None = None) -> None:
        """Go back to what was healthy last."""
        self._of_deployment("rollback", name, namespace)

    def retry(self, name: str, *, ranks: Iterable[int] = (), namespace: str | None = None) -> None:
        """Try again now what failed."""
        self._of_deployment("retry", name, namespace, ranks=list(ranks))

    def evict(self, name: str, *, keep: str = "WARM", namespace: str | None = None) -> None:
        """Take weights off the GPUs."""
        self._of_deployment("evict", name, namespace, keep=keep)

    def update(self, name: str, *, namespace: str | None = None, **options: Any) -> None:
        """Change options of a deployment in place."""
        self._of_deployment("update", name, namespace, options=options)

    def cordon(self, node: str, *, namespace: str | None = None) -> CordonedNode:
        """Let nothing new come to a node."""
        return self._of_node("cordon", node, namespace)

    def uncordon(self, node: str, *, namespace: str | None = None) -> CordonedNode:
        """Cordon and drain of a node are over."""
        return self._of_node("uncordon", node, namespace)

    def drain(
        self, node: str, *, deadline_s: float | None = None, reason: str = "drain", namespace: str | None = None
    ) -> CordonedNode:
        """Have all replicas leave a node."""
        return self._of_node("drain", node, namespace, deadline_s=deadline_s, reason=reason)

    def stop_replicas(self, replica_ids: Iterable[str], *, namespace: str | None = None) -> None:
        """Stop these replicas."""
        self._post("/api/v1/replicas/stop", namespace, replica_ids=list(replica_ids))

    def replace_replicas(
        self, replica_ids: Iterable[str], *, deadline_s: float | None = None, namespace: str | None = None
    ) -> None:
        """Replace these replicas."""
        self._post("/api/v1/replicas/replace", namespace, replica_ids=list(replica_ids), deadline_s=deadline_s)

    def delete(self, name: str, *, namespace: str | None = None, timeout_s: float | None = None) -> None:
        """Delete an application, else a deployment, and wait until it is gone.

        Raises:
            TimeoutError: It is not in time; it goes on.
        """
        there_are = self.status(namespace=namespace).deployments
        meant = [each for each, info in there_are.items() if info.app_name == name]
        path = f"/api/v1/applications/{quote(name, safe='')}"
        if not meant:
            meant = meant_by(name, there_are)
            if len(meant) != 1:
                raise UnknownNameError(not_one("application or deployment", name, meant, there_are))
            path = _path_of(meant[0])
        self._client.ask("DELETE", path)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while set(meant) & set(self.status().deployments):
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{name} is not gone within {timeout_s:g} s")
            time.sleep(LOOK_EVERY_S)

    def shutdown(self, *, namespace: str | None = None, timeout_s: float | None = None) -> None:
        """Delete all applications and end the controller; the server stays."""
        if timeout_s is not None:
            raise InvalidCallError("timeout_s cannot be had through a REST server: deployments say how long calls may take")
        self._check(namespace)
        self._client.ask("DELETE", APPLICATIONS)

    # -- what a server does not have

    def replica_logs(self, name: str, **_: Any) -> Iterator["LogLine"]:
        """Refused: they lie on the nodes.

        Raises:
            InvalidCallError: Always.
        """
        return self._not_here("logs of replicas", "run `rankcore logs` on a machine of the cluster")

    def notes(self, **_: Any) -> Iterator[dict[str, Any]]:
        """Refused likewise."""
        return self._not_here("notes", f"`curl -N {self._client.address}/api/v1/notes` has them as server-sent events")

    def requests_under_way(self, *_: Any, **__: Any) -> Any:
        """Refused likewise."""
        return self._not_here("requests", f"`curl {self._client.address}/api/v1/requests` has them")

    def cancel_request(self, *_: Any, **__: Any) -> Any:
        """Refused likewise."""
        return self._not_here("requests", f"`curl -X DELETE {self._client.address}/api/v1/requests/ID` ends one")

    def cancel_waiting(self, *_: Any, **__: Any) -> Any:
        """Refused likewise."""
        return self._not_here("requests", f"`curl -X DELETE {self._client.address}/api/v1/requests?waiting_for=NAME` ends them")

    def _not_here(self, what: str, instead: str) -> NoReturn:
        raise InvalidCallError(f"{what} cannot be had by this command through a REST server: {instead}")

    # -- asking

    def _check(self, namespace: str | None) -> None:
        """A server is asked for its namespace where one is named."""
        if namespace is not None:
            self.status(namespace=namespace)

    def _post(self, path: str, namespace: str | None, **body: Any) -> RestAnswer:
        self._check(namespace)
        return self._client.ask("POST", path, body)

    def _of_deployment(self, verb: str, name: str, namespace: str | None, **body: Any) -> None:
        self._post(f"{_path_of(name)}/{verb}", namespace, **body)

    def _of_node(self, verb: str, node: str, namespace: str | None, **body: Any) -> CordonedNode:
        answer = self._post(f"/api/v1/nodes/{quote(node, safe='')}/{verb}", namespace, **body)
        return self._client.read(answer, CordonedNode)


def _path_of(name: str) -> str:
    application, deployment = (quote(each, safe="") for each in split(name))
    return f"/api/v1/applications/{application}/deployments/{deployment}"
