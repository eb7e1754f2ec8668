"""W14 in words: a percentile says of what it is, `never` and bounds are told as such, and a number has its unit."""

import pytest

from executors.simulator.load.requests import RequestCounts, SoFar
from executors.simulator.record.figures import request_figures
from executors.simulator.record.flat_figures import flatten_any, is_percentile, label
from executors.simulator.record.percentiles import percentiles_of_all
from executors.simulator.report.words import of_finished, percentiles


@pytest.mark.parametrize(
    ("values", "told", "finished"),
    [
        (percentiles_of_all([1.0, 1.0, 1.0]), "1.00 / 1.00 / 1.00 s", "-"),
        (percentiles_of_all([1.0, 1.0, 1.0], failed=1), "1.00 s / never / never", "1.00 / 1.00 / 1.00 s"),
        (percentiles_of_all([1.0, 1.0, 1.0], so_far=[9.0]), "1.00 / > 7.79 / > 8.75 s", "1.00 / 1.00 / 1.00 s"),
        (percentiles_of_all([], so_far=[0.0, 0.0]), "unknown / unknown / unknown", "none"),
        (percentiles_of_all([], so_far=[0.004, 2.0], failed=1), "> 2.00 s / never / never", "none"),
        (percentiles_of_all([], failed=1), "never / never / never", "none"),
        (percentiles_of_all([]), "none", "-"),
    ],
)
def test_what_is_known_of_three_percentiles(values, told, finished):
    assert (percentiles(values), of_finished(values)) == (told, finished)


def test_a_bound_is_rounded_down_and_one_that_says_nothing_is_not_told():
    assert percentiles(percentiles_of_all([], so_far=[1.239])) == "> 1.23 / > 1.23 / > 1.23 s"
    assert percentiles(percentiles_of_all([], so_far=[0.009])) == "unknown / unknown / unknown"
    assert percentiles_of_all([], so_far=[0.009]).p99_at_least == pytest.approx(0.009), "JSON has it"


def test_a_label_of_a_percentile_says_of_what_it_is():
    figures = request_figures(RequestCounts(), SoFar())
    named = [label(f"requests.{key}") for key in flatten_any(figures) if is_percentile(key)]
    assert named == [f"{what} {name} of all" for what in ("wait", "latency") for name in ("p50", "p95", "p99")]
    assert label("misses.first_answer_s.p95") == "first answer p95 of answered"
    assert label("requests.not_done") == "requests not done"
