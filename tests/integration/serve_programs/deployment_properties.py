"""A deployment says which options it has; `options` makes another with some of them changed."""

from ray import serve


@serve.deployment(num_replicas=2, user_config={"a": 1}, max_ongoing_requests=7, ray_actor_options={"num_cpus": 0})
class Model:
    pass


def shown(each) -> list:
    numbers = [each.num_replicas, each.max_ongoing_requests, each.max_queued_requests]
    return [each.name, *numbers, each.user_config, each.ray_actor_options["num_cpus"], list(each.init_args), each.version]


def logging_of(each) -> list:
    found = each.logging_config
    return found if found is None else [found["encoding"], found["log_level"], found["enable_access_log"], sorted(found)]


def main() -> object:
    changed = Model.options(name="other", num_replicas=3, max_queued_requests=9)
    plain = serve.deployment(Model.func_or_class)
    quiet = Model.options(logging_config={"log_level": "ERROR", "enable_access_log": False})
    logging = [logging_of(Model), logging_of(quiet)]
    quiet.set_logging_config({"encoding": "JSON"})
    told = quiet.logging_config["encoding"]
    return [shown(Model), shown(changed), shown(plain), logging, told]


EXPECTED = [
    ["Model", 2, 7, -1, {"a": 1}, 0, [], None],
    ["other", 3, 7, 9, {"a": 1}, 0, [], None],
    ["Model", 1, 5, -1, None, 1, [], None],
    [
        None,
        [
            "TEXT",
            "ERROR",
            False,
            ["additional_log_standard_attrs", "enable_access_log", "encoding", "log_level", "logs_dir"],
        ],
    ],
    "JSON",
]
