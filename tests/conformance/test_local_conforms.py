"""The conformance kit against replicas that are processes of this machine."""

import pytest

from rankcore.testing import conformance
from tests.conformance.local import LocalBench


class TestTheLocalExecutor(conformance.ConformanceTests):
    @pytest.fixture
    def bench(self, tmp_path):
        with LocalBench(tmp_path) as bench:
            yield bench
