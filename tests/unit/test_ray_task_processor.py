"""Replicas that take tasks of a queue: their adapter begins after `__init__`, runs what is in the queue, and ends with them."""

import json
import threading
import uuid
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import context
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.task_consumer import instantiate_adapter_from_config, task_consumer, task_handler
from executors.ray_gpu.task_processor import TaskProcessorAdapter, TaskProcessorConfig, TaskResult
from tests.unit import test_ray_calls
from tests.unit.test_ray_calls import TIMEOUT_S, replica


class Folder(TaskProcessorAdapter):
    """A queue that is a folder: a file is a task, and has its result in the end."""

    def __init__(self, config):
        self.folder = Path(config.adapter_config["folder"]) / config.queue_name
        self.failed = config.failed_task_queue_name
        self.retries = config.max_retries
        self.handlers = {}
        self.stopped = threading.Event()
        self.thread = None

    def initialize(self, consumer_concurrency=8):
        self.concurrency = consumer_concurrency
        self.folder.mkdir(parents=True, exist_ok=True)

    def register_task_handle(self, func, name=None):
        self.handlers[name or func.__name__] = func

    def enqueue_task_sync(self, task_name, args=None, kwargs=None, **options):
        task_id = uuid.uuid4().hex
        self._write(
            task_id, {"name": task_name, "args": args or [], "kwargs": kwargs or {}, "status": "PENDING", "result": None}
        )
        return self.get_task_status_sync(task_id)

    def get_task_status_sync(self, task_id):
        task = json.loads((self.folder / task_id).read_text())
        return TaskResult(id=task_id, status=task["status"], result=task["result"])

    def start_consumer(self, **kwargs):
        self.thread = threading.Thread(target=self._consume, daemon=True)
        self.thread.start()

    def stop_consumer(self, timeout=10.0):
        self.stopped.set()
        self.thread.join(timeout)

    def cancel_task_sync(self, task_id):
        (self.folder / task_id).unlink()

    def get_metrics_sync(self):
        return {"tasks": len(list(self.folder.iterdir()))}

    def health_check_sync(self):
        return [{"alive": self.thread is not None and self.thread.is_alive()}]

    def _write(self, task_id, task):
        being_written = self.folder.with_name(task_id)
        being_written.write_text(json.dumps(task))
        being_written.rename(self.folder / task_id)

    def _consume(self):
        while not self.stopped.wait(0.01):
            for path in sorted(self.folder.iterdir()):
                task = json.loads(path.read_text())
                if task["status"] == "PENDING":
                    self._run(path.name, task)

    def _run(self, task_id, task):
        for left in range(self.retries, -1, -1):
            try:
                result = self.handlers[task["name"]](*task["args"], **task["kwargs"])
            except Exception as error:
                if not left:
                    self._write(task_id, {**task, "status": "FAILURE", "result": str(error)})
            else:
                return self._write(task_id, {**task, "status": "SUCCESS", "result": result})


def consumer(folder, **fields):
    config = TaskProcessorConfig(queue_name="resize", adapter=Folder, adapter_config={"folder": str(folder)}, **fields)

    @task_consumer(task_processor_config=config)
    class Model(test_ray_calls.Model):
        tries = 0

        @task_handler(name="double")
        def twice(self, number):
            return 2 * number

        @task_handler
        def fails(self):
            self.tries += 1
            raise ValueError(f"try {self.tries}")

        def not_a_task(self):
            return "a method"

    return config, Model


def test_a_replica_runs_the_tasks_of_its_queue_until_it_ends(tmp_path):
    config, model = consumer(tmp_path / "queue", max_retries=2)
    with replica(tmp_path, model, max_ongoing_requests=3) as (user, _):
        change = test_ray_calls.Change(1, 1, True, (0, 0, 0), 1, None)
        context.set_context(context.ReplicaContext("app", "m", "m#1.0", (0, 0, 0), 1, "node", "ns"))
        user.submit(user.start(change)).result(TIMEOUT_S)
        user.submit(user.start(change)).result(TIMEOUT_S)
        adapter = user.instance._rankcore_adapter
        assert adapter.concurrency == user.code.max_ongoing_requests == 5
        assert sorted(adapter.handlers) == ["double", "fails"]
        caller = instantiate_adapter_from_config(config)
        done = caller.enqueue_task_sync("double", args=[21])
        failed = caller.enqueue_task_sync("fails")
        ended = threading.Event()

        def until(task, status):
            while caller.get_task_status_sync(task.id).status != status:
                assert not ended.wait(0.01)
            return caller.get_task_status_sync(task.id).result

        assert until(done, "SUCCESS") == 42
        assert until(failed, "FAILURE") == "try 3"
        assert user.instance.not_a_task() == "a method"
        assert model.__name__ == "Model"
        user.submit(user.end()).result(TIMEOUT_S)
        assert adapter.health_check_sync() == [{"alive": False}]
        context.set_context(None)


def test_a_config_without_an_adapter_is_refused_and_one_that_is_none():
    fields = {"queue_name": "q", "adapter_config": {}}
    with pytest.raises(InvalidDeploymentError, match="adapter must be a TaskProcessorAdapter"):
        instantiate_adapter_from_config(TaskProcessorConfig(**fields))
    for wrong in (3, dict):
        with pytest.raises(TypeError):
            instantiate_adapter_from_config(TaskProcessorConfig(adapter=wrong, **fields))
    with pytest.raises(RuntimeError, match="Folder cannot be made"):
        instantiate_adapter_from_config(TaskProcessorConfig(adapter=Folder, **fields))
    named = f"{Folder.__module__}:Folder"
    with pytest.raises(RuntimeError):
        instantiate_adapter_from_config(TaskProcessorConfig(adapter=named, **fields))
    with pytest.raises(ValueError, match="non-empty string"):
        task_handler(name=" ")


def test_the_fields_are_those_of_ray_serve():
    schema = pytest.importorskip("ray.serve.schema")
    import attrs

    for ours in (TaskProcessorConfig, TaskResult):
        theirs = getattr(schema, ours.__name__).model_fields
        assert [field.name for field in attrs.fields(ours)] == list(theirs)
    abstract = {name for name in dir(schema.TaskProcessorAdapter) if name.endswith("_sync") or "consumer" in name}
    assert abstract <= set(dir(TaskProcessorAdapter))
