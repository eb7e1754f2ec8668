"""What a router says of its calls that wait, to whoever lists or ends them.

All of it runs on the routers' thread.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from executors.ray_gpu.requests.call import Call
from executors.ray_gpu.requests.standing import CallStanding
from rankcore.routing import RequestId


def described(
    calls: Iterable[Call], places: Mapping[RequestId, int], standing: CallStanding | None, now: float
) -> list[dict[str, Any]]:
    """The calls as plain data.

    Args:
        places: Of those that wait, from 1.
        standing: How their deployment stands; None: it has routes, and they wait for a place.
    """
    stands = str(standing.status[1]) if standing is not None and standing.status is not None else "QUEUED"
    return [
        {
            "request": call.request_id,
            "method": call.method,
            "request_id": call.name,
            "model_id": call.about.model_id,
            "stream": call.about.stream,
            "age_s": now - call.arrived_at,
            "position": places.get(call.request_id, 0),
            "status": stands,
        }
        for call in calls
    ]
