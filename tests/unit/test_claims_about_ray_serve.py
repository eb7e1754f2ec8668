"""What the pages say of Ray Serve: each sentence has a test that tries it, or is none that could be tried.

A page that comes to speak of Ray Serve in another line fails here until the line is in the table.
"""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
OURS = "no statement of what Ray Serve does"
FIGURES = "figures, by the benchmark that the page names"
CLUSTER = "tests/integration/test_requests_against_ray_serve.py::"
SCALING = "tests/property/test_autoscaling_against_ray_serve.py::"
BATCHES = "tests/property/test_batching_against_ray_serve.py::"
HERE = "tests/unit/test_claims_about_ray_serve.py::"

WHOLE_PAGES = {
    "docs/ray-serve.md": ("tests/integration/test_embedding_in_serve.py", "tests/property/test_ranks_in_serve.py"),
    "docs/logging.md": ("tests/unit/test_logs.py",),
    "docs/metrics.md": ("tests/unit/test_metrics.py",),
    "docs/rest.md": ("tests/integration/test_ray_rest.py", "tests/unit/test_rest.py"),
    "docs/serve-compatibility.md": (
        "tests/unit/test_serve_compatibility.py",
        "tests/integration/test_ray_serve_programs.py",
    ),
    "docs/incidents.md": ("tests/scenarios/test_scenarios.py",),  # what others have reported, each with its source
}
"""Pages whose tests are of the page as a whole."""

CLAIMS: dict[str, dict[str, str | tuple[str, ...]]] = {
    "README.md": {
        "measures the core against Ray Serve's rank manager": OURS,
        "puts the rank table into an installed Ray Serve": ("tests/integration/test_embedding_in_serve.py",),
        "are called as in Ray Serve": (HERE + "test_names_that_readme_speaks_of_are_those_of_ray_serve",),
        "ranks of rankcore inside Ray Serve itself": OURS,
        "every public name of Ray Serve: the same here": OURS,
        "REST: Ray Serve's paths": ("tests/integration/test_ray_rest.py",),
    },
    "docs/autoscaling.md": {
        "## Beside Ray Serve": OURS,
        "Options, defaults and semantics are those of Ray Serve 2.60": (
            HERE + "test_options_of_the_autoscaler_have_the_names_and_defaults_of_ray_serve",
            SCALING + "test_a_load_that_only_grows_or_only_shrinks_has_the_targets_of_ray_serve",
            SCALING + "test_any_load_has_the_targets_of_ray_serve_up_to_the_first_upscale_after_a_downscale",
        ),
        "Serve's policy changes the target 28 times": (
            SCALING + "test_on_the_steady_load_of_ray_63279_serve_goes_up_and_down_for_ever_and_ours_comes_to_rest",
        ),
        "takes Ray Serve below what the load calls for": (
            SCALING + "test_a_downscaling_factor_above_1_takes_serve_below_what_the_load_calls_for_and_ours_ends_there",
        ),
        "Ray Serve multiplies what is missing to the running replicas": (
            SCALING + "test_serve_multiplies_what_is_missing_to_the_running_replicas_and_ours_what_is_missing_to_the_target",
        ),
        "the value that holds as the look-back begins counts too": (
            SCALING + "test_what_holds_as_the_look_back_begins_counts_here_and_there_what_was_reported_in_it",
            SCALING + "test_the_most_and_the_least_are_those_of_ray_serve_once_each_source_was_heard",
        ),
        'Ray Serve\'s form `{"policy_function": ...}`': (HERE + "test_a_policy_may_have_the_form_of_ray_serve",),
    },
    "docs/http.md": {
        "## What is otherwise than in Ray Serve": OURS,
        "an application is at `/`, as in Ray Serve": ("tests/integration/test_ray_serve_programs.py",),
        "| HTTP |": (CLUSTER + "test_http_is_always_on_there_and_with_the_first_route_here",),
        "| a replica dies |": (CLUSTER + "test_over_http_a_replica_that_dies_is_500_there_and_502_here",),
        "| request timeout |": (CLUSTER + "test_over_http_a_request_that_takes_too_long_is_408_there_and_504_here",),
        "| `DeploymentHandle` of an ingress |": (CLUSTER + "test_a_handle_of_an_ingress_runs_its_methods",),
    },
    "docs/design.md": {
        "R1 to R12 follow those that Ray Serve documents": ("tests/property/test_against_ray_serve.py",),
    },
    "docs/embedding.md": {"shows it inside Ray Serve": OURS},
    "docs/ray.md": {
        "not on Ray Serve": OURS,
        "## What is otherwise than in Ray Serve": OURS,
        "| a deployment's bare name |": (
            CLUSTER + "test_a_bare_name_is_no_name_outside_an_application_there_and_is_enough_here_where_one_has_it",
            CLUSTER + "test_a_class_that_is_bound_twice_is_two_deployments",
        ),
        "Names are as there: `app/deployment`": (
            CLUSTER + "test_names_belong_to_their_application",
            CLUSTER + "test_a_class_that_is_bound_twice_is_two_deployments",
            HERE + "test_deployments_of_one_name_in_an_application_get_the_names_that_ray_serve_gives_them",
        ),
        "| `run` again, with nothing changed |": (
            CLUSTER + "test_what_is_deployed_again_unchanged_is_replaced_there_and_stays_here",
        ),
        "| another class under a deployment's name |": (
            CLUSTER + "test_another_class_under_the_name_replaces_it_there_and_is_refused_here",
        ),
        "As there, an application replaces the one of its name": (
            CLUSTER + "test_an_application_replaces_the_one_of_its_name_and_its_deployments_go",
            CLUSTER + "test_an_init_may_be_asynchronous",
            CLUSTER + "test_a_replica_asks_for_one_processor_where_nothing_is_said",
        ),
        "only the columns are to be compared": FIGURES,
        "As in Ray Serve (`executors.ray_gpu.config.DeploymentActorConfig`": (
            "tests/integration/test_ray_serve_programs.py",
            "tests/unit/test_deployment_actors.py",
        ),
    },
    "docs/applications.md": {
        "so many percent of all replicas, as in Ray Serve": (
            "tests/unit/test_capacity.py::test_a_share_is_as_many_replicas_as_in_serve",
            "tests/unit/test_capacity.py::test_a_share_grows_whenever_it_does_in_serve",
        ),
        "`rankcore deploy FILE` takes Ray Serve's config schema": (
            HERE + "test_a_file_of_applications_has_the_keys_of_ray_serves_config_as_far_as_it_goes",
            "tests/integration/test_ray_shell.py",
        ),
    },
    "docs/residency.md": {
        "`apps.yaml` has Ray Serve's config schema": (
            HERE + "test_a_file_of_applications_has_the_keys_of_ray_serves_config_as_far_as_it_goes",
        ),
    },
    "docs/requests.md": {
        "which `except ray.exceptions.RayTaskError` catches too, as in Ray Serve": (
            "tests/integration/test_ray_serve_programs.py",
        ),
        "keeps the models that were asked for last, as in Ray Serve": (
            CLUSTER + "test_models_are_kept_by_how_lately_they_were_asked_for",
        ),
        "It takes what Ray Serve's takes, with the same defaults": (
            BATCHES + "test_the_decorator_takes_the_same_options_with_the_same_defaults",
            BATCHES + "test_what_the_decorator_returns_has_the_same_public_setters",
            BATCHES + "test_each_argument_becomes_a_list_however_it_is_passed",
            BATCHES + "test_a_generator_yields_one_item_for_each_caller_until_each_has_its_end",
            BATCHES + "test_batches_by_size_never_are_larger_and_what_is_too_large_alone_fails_alone",
        ),
        "that caller gets it raised; Ray Serve returns it": (
            BATCHES + "test_an_exception_in_a_callers_place_is_raised_where_ray_serve_returns_it",
        ),
        "go into other batches; in Ray Serve both fail": (
            BATCHES + "test_calls_with_other_arguments_go_into_other_batches_where_ray_serve_fails_both",
        ),
        "in Ray Serve as one, so that both run at once": (
            BATCHES + "test_batches_of_two_models_are_two_batches_where_ray_serve_counts_them_as_one",
        ),
        "runs on uvloop too, where it is installed, as in Ray Serve": (CLUSTER + "test_user_code_runs_on_uvloop",),
        "comes, and Ctrl-C leaves the table": FIGURES,
        'rounds of ours and two of Ray Serve\'s. "times" is beside Serve': FIGURES,
        "gRPC with Serve's throughput settings is of the run": FIGURES,
        "of Ray Serve as well. Streams over HTTP": FIGURES,
        "item over HTTP (Ray Serve 65 to 77)": FIGURES,
        "## What is otherwise than in Ray Serve": OURS,
        "| synchronous methods |": (CLUSTER + "test_a_synchronous_method_blocks_no_asynchronous_one",),
        "| a call whose replica dies |": (
            CLUSTER + "test_a_call_whose_replica_dies_is_an_error_unless_it_is_said_to_be_idempotent_here",
        ),
        "Every public name of Ray Serve stands in": ("tests/unit/test_serve_compatibility.py",),
        "(`FIFOMixin`, `LocalityMixin`, `MultiplexMixin`) are as in Ray Serve": (
            "tests/integration/test_ray_serve_programs.py",
        ),
        "with the methods of Ray Serve's; it begins when": (
            "tests/unit/test_ray_task_processor.py::test_the_fields_are_those_of_ray_serve",
        ),
        "| `FIFOMixin` |": (
            HERE + "test_a_replica_that_was_found_for_any_call_goes_to_the_oldest_with_ray_serves_fifo_mixin",
            "tests/unit/test_routing_proposals.py",
        ),
        "| to one rank |": (CLUSTER + "test_to_one_rank_there_is_no_option_there",),
        "| to all |": (
            CLUSTER + "test_to_all_and_what_one_of_them_raises",
            "tests/integration/test_ray_serve_programs.py",
        ),
        "| a response inside a list argument |": (CLUSTER + "test_a_response_inside_a_list_is_an_error",),
        "| `response.result()` in asynchronous code |": (
            CLUSTER + "test_waiting_with_result_in_asynchronous_code_is_an_error_that_says_await",
        ),
        "| `max_queued_requests` |": (CLUSTER + "test_what_waits_is_limited_per_handle_there_and_per_process_here",),
    },
    "docs/rollouts.md": {
        "Ray and Ray Serve 2.60, Python 3.11. rankcore has `max_unavailable=1` and Ray Serve": FIGURES,
        "| `max_unavailable` |": (
            HERE + "test_options_of_a_rollout_have_the_names_and_defaults_of_ray_serve",
            "tests/unit/test_serve_options.py::test_as_many_replicas_as_in_serve",
        ),
        "| `max_surge` |": (
            HERE + "test_options_of_a_rollout_have_the_names_and_defaults_of_ray_serve",
            "tests/unit/test_serve_options.py::test_as_many_replicas_as_in_serve",
        ),
        "| `check_ready`, `check_health` |": (
            HERE + "test_a_replica_of_ray_serve_is_asked_for_its_health_and_not_whether_it_is_ready",
        ),
    },
    "docs/scenario-reference.md": {
        "Names, meanings and defaults are those of Ray Serve 2.60": (
            HERE + "test_options_of_the_autoscaler_have_the_names_and_defaults_of_ray_serve",
            "tests/property/test_autoscaling_against_ray_serve.py",
        ),
        "Ray Serve has no such option": (HERE + "test_options_of_the_autoscaler_have_the_names_and_defaults_of_ray_serve",),
    },
}

SPEAKS = re.compile(r"\bRay Serve\b|\bServe's\b|\bServe 2\.\d|\bin Serve\b|\b[Aa]s there\b(?! (?:is|are|was|were)\b)")


def statements(text):
    """The lines that speak of Ray Serve: by its name, or in a column of a table that is about it; figures apart."""
    column, in_figures = None, False
    for line in text.splitlines():
        if line.startswith("## "):
            in_figures = line == "## Figures"
        cells = [each.strip() for each in line.strip("|").split("|")] if line.startswith("|") else []
        if "Ray Serve" in cells:
            column = None if in_figures else cells.index("Ray Serve")
        elif not cells:
            column = None
        elif column is not None and not set(line) <= set("|-: ") and cells[column]:
            yield line
            continue
        if SPEAKS.search(line) and "Ray Serve" not in cells:
            yield line


PAGES = ["README.md", *(f"docs/{each.name}" for each in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_each_line_that_speaks_of_ray_serve_has_its_test(page):
    found = list(statements((ROOT / page).read_text(encoding="utf-8")))
    claims = CLAIMS.get(page, {})
    if page not in WHOLE_PAGES:
        assert [line for line in found if not any(phrase in line for phrase in claims)] == [], "put it into CLAIMS, with a test"
    assert [phrase for phrase in claims if not any(phrase in line for line in found)] == [], "the page does not say it any more"


def test_the_tests_that_the_table_names_are_there():
    named = {each for claims in CLAIMS.values() for tests in claims.values() if isinstance(tests, tuple) for each in tests}
    named |= {each for tests in WHOLE_PAGES.values() for each in tests}
    for each in sorted(named):
        path, _, function = each.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert not function or function in functions, f"{path} has no {function}"


def test_a_sentence_about_ray_serve_that_nobody_has_tried_is_found():
    table = "| | Ray Serve | here |\n|---|---|---|\n| x | a | b |\n| y | | b |\n"
    page = f"a\nas in Ray Serve, x\n\n{table}\nas there are\nAs there, y\n"
    assert list(statements(page)) == ["as in Ray Serve, x", "| x | a | b |", "As there, y"]


def test_names_that_readme_speaks_of_are_those_of_ray_serve():
    serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    from executors import ray_gpu

    shared = {
        "Application", "Deployment", "batch", "delete", "deployment", "get_app_handle", "get_deployment_handle",
        "get_multiplexed_model_id", "get_replica_context", "ingress", "multiplexed", "run", "run_many", "RunTarget", "shutdown",
        "shutdown_async", "start", "status", "ControllerOptions", "HTTPOptions", "TracingConfig", "get_trace_context",
        "get_deployment_actor", "get_deployment_actor_context",
    }  # fmt: skip
    assert {each for each in ray_gpu.__all__ if hasattr(serve, each)} == shared


def test_a_file_of_applications_has_the_keys_of_ray_serves_config_as_far_as_it_goes():
    schema = pytest.importorskip("ray.serve.schema", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    from executors.apps.file import ApplicationConfig, AppsConfig
    from executors.ray_gpu.building import OPTIONS

    assert set(AppsConfig.__struct_fields__) <= set(schema.ServeDeploySchema.model_fields)
    assert set(ApplicationConfig.__struct_fields__) <= set(schema.ServeApplicationSchema.model_fields)
    missing = set(schema.DeploymentSchema.model_fields) - {*OPTIONS, "name"}
    assert {each for each in missing if not each.startswith(("placement_group", "gang", "request_router"))} == set()


def test_options_of_the_autoscaler_have_the_names_and_defaults_of_ray_serve():
    config = pytest.importorskip("ray.serve.config", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    import attrs

    from rankcore.autoscaling import AutoscalingSpec

    theirs = {name: field.default for name, field in config.AutoscalingConfig.model_fields.items()}
    ours = {field.name: field.default for field in attrs.fields(AutoscalingSpec)}
    assert set(ours) - set(theirs) == {"max_rank_moves"}
    # Left out, both factors are 1 there too, by way of the `smoothing_factor` that they had before.
    made = config.AutoscalingConfig()
    theirs |= {"upscaling_factor": made.get_upscaling_factor(), "downscaling_factor": made.get_downscaling_factor()}
    assert {name: (ours[name], theirs[name]) for name in set(ours) & set(theirs) if ours[name] != theirs[name]} == {}


def test_options_of_a_rollout_have_the_names_and_defaults_of_ray_serve():
    schema = pytest.importorskip("ray.serve.schema", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    config = pytest.importorskip("ray.serve._private.config", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    from executors.ray_gpu.serve_options import SERVE_OPTIONS
    from rankcore import DeploymentSpec

    made = config.DeploymentConfig()
    rollout = ("rolling_update_percentage", "max_surge_percent")
    theirs = {theirs: getattr(made, theirs) for theirs in SERVE_OPTIONS}
    assert [theirs[name] for name in rollout] == [0.2, 0]
    assert set(rollout) <= set(schema.DeploymentSchema.model_fields)
    ours = DeploymentSpec(name="llm", target_replicas=10)
    assert (ours.unavailable_max, ours.surge_max) == (2, 0)


def test_a_replica_of_ray_serve_is_asked_for_its_health_and_not_whether_it_is_ready():
    replica = pytest.importorskip("ray.serve._private.replica", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    from ray.serve._private.constants import HEALTH_CHECK_METHOD

    assert HEALTH_CHECK_METHOD == "check_health"
    assert "check_ready" not in Path(replica.__file__).read_text(encoding="utf-8")


NAMES = st.sampled_from(["M", "N", "M_1", "M_2", "M_1_1"])
"""Of deployments: some look like those that others are renamed to."""


@given(st.lists(st.tuples(NAMES, st.lists(st.integers(0, 9), max_size=3), st.lists(st.integers(0, 9), max_size=2)), min_size=1))
def test_deployments_of_one_name_in_an_application_get_the_names_that_ray_serve_gives_them(nodes):
    """Each is bound to some of those before it, several times perhaps, directly, in lists and by keyword."""
    serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    from ray.serve._private.build_app import build_app

    from executors import ray_gpu
    from executors.ray_gpu.applications import in_order

    def bound(api):
        made = []
        for name, args, nested in nodes:
            children = [made[each % len(made)] for each in args] if made else []
            others = [made[each % len(made)] for each in nested] if made else []
            made.append(api.deployment(name=name)(Subject).bind(*children, others, last={"in": [*others, *children]}))
        return made[-1]

    theirs = build_app(bound(serve), name="app", make_deployment_handle=lambda deployment, app_name: deployment.name)
    ours = in_order(bound(ray_gpu))
    assert (list(ours), list(ours)[-1]) == ([each.name for each in theirs.deployments], theirs.ingress_deployment_name)


class Subject:
    pass


def test_a_policy_may_have_the_form_of_ray_serve():
    config = pytest.importorskip("ray.serve.config", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    from executors.ray_gpu.scaling_policy import PolicySource

    given = {"policy_function": "rankcore.autoscaling.policies:ongoing_requests"}
    assert config.AutoscalingPolicy(**given).policy_function == given["policy_function"]
    assert PolicySource.of(given) == PolicySource.of(given["policy_function"])


def test_a_replica_that_was_found_for_any_call_goes_to_the_oldest_with_ray_serves_fifo_mixin():
    pytest.importorskip("ray.serve")
    from collections import deque
    from concurrent.futures import Future
    from types import SimpleNamespace

    from ray.serve.request_router import FIFOMixin

    class Router(FIFOMixin):
        _record_queue_wait_time = _remove_pending_request_from_indices = _cancel_routing_task_for_pending_request = (
            lambda self, pending: None
        )

    router = Router()
    older, younger = (SimpleNamespace(future=Future()) for _ in range(2))
    router._pending_requests_to_fulfill = deque((older, younger))
    router._fulfill_next_pending_request("found for the younger one")
    assert older.future.result(0) == "found for the younger one"
    assert not younger.future.done()
