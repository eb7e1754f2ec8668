"""A small good executor passes all of the kit. `mutants` plants bugs in it and in the replica's half: would the kit notice?"""

import pytest

from rankcore.testing import conformance
from tests.conformance.in_memory import World

pytestmark = pytest.mark.traced


class TestAGoodExecutor(conformance.ConformanceTests):
    seeds = range(3)

    @pytest.fixture
    def bench(self):
        return World()
