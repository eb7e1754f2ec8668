"""Which processes a controller looks at after a step: whoever needs one no more is named by the step (`machine.concerned`)."""

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.ray_gpu.residency.hosts import is_needed
from executors.ray_gpu.residency.machine import concerned
from rankcore.residency import residency_step
from tests.property.test_residency import Residency


class Needs(Residency):
    """The planner's world, with a look at every process after every step."""

    def feed(self, event):
        before, step = self.state, residency_step(self.state, event)
        super().feed(event)
        for replica_id, record in before.replicas.items():
            for node_id in {record.node_id, record.copy_node_id} - {None}:
                if is_needed(record, node_id) and not is_needed(step.state.replicas.get(replica_id), node_id):
                    assert replica_id in concerned(event, step)


TestNeeds = Needs.TestCase
