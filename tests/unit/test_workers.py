"""Work that is given out while results come in: what is asked next may depend on what was found."""

import pytest

from executors.workers import in_processes, in_this_process


def growing(results, pieces: list[int]) -> dict[int, int]:
    """Each round of pieces is known once the one before is done."""
    found = {}
    for index, result in results:
        found[index] = result
        if len(found) == len(pieces) < 6:
            pieces += [-each for each in range(len(pieces), len(pieces) + 2)]
    return found


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_list_may_grow_while_its_results_are_taken(jobs):
    pieces = [-1, -2]
    assert growing(in_processes(pieces, abs, jobs), pieces) == {0: 1, 1: 2, 2: 2, 3: 3, 4: 4, 5: 5}
    pieces = [-1, -2]
    assert growing(in_this_process(pieces, abs), pieces) == {0: 1, 1: 2, 2: 2, 3: 3, 4: 4, 5: 5}
