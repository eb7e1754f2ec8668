"""Who waits for a version that is rolled back is told why, though what serves again has nothing to complain of."""

from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import deploying
from executors.ray_gpu.errors import DeploymentFailedError
from rankcore import DeploymentStatus

WHY = "version '2' failed 2 times; back to version '1'"
UPDATES = SimpleNamespace(is_settled=False, status=DeploymentStatus.UPDATING, message=WHY, version="1")
SERVES = SimpleNamespace(is_settled=True, status=DeploymentStatus.HEALTHY, message="", version="1")


@pytest.mark.parametrize(
    ("seen", "why"),
    [([UPDATES, SERVES], WHY), ([SERVES], "`rankcore explain` says why")],
)
def test_a_version_that_is_rolled_back_is_an_error_that_says_why(monkeypatch, seen, why):
    looks = iter(seen)
    monkeypatch.setattr(deploying, "ask", lambda *_, **__: next(looks))
    with pytest.raises(DeploymentFailedError) as caught:
        deploying._wait_healthy(None, "shop/M", "2", None)
    assert str(caught.value) == f"shop/M was rolled back to version 1: {why}"
