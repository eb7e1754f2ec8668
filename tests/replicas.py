"""Replicas and workers that tests follow over time: each holds the value that it is by now."""

from rankcore.replica import messages
from rankcore.replica.replica import Refused
from rankcore.replica.worker import Worker, leave


class HeldReplica:
    """One replica's process without a process. What is asked of it is asked of its present value."""

    def __init__(self, start, node_id):
        self.value = messages.started(start, node_id)
        self.refused = 0

    def __getattr__(self, name):
        return getattr(self.value, name)

    def receive(self, message, now):
        self.value, reactions = messages.receive(self.value, message, now)
        self.refused += sum(isinstance(each, Refused) for each in reactions)
        return tuple(each for each in reactions if not isinstance(each, Refused))

    def readiness_checked(self, now, problem=None):
        self.value, reactions = messages.readiness_checked(self.value, now, problem)
        return reactions

    def user_code_ended(self, now, failure=None):
        self.value, reactions = messages.user_code_ended(self.value, now, failure)
        return reactions


class HeldWorker:
    """The same of a process that may hold tenures."""

    def __init__(self, worker_id, node_id):
        self.value = Worker(worker_id, node_id)

    @property
    def tenure(self):
        return self.value.tenure

    @property
    def rank(self):
        return self.value.rank

    @property
    def world_size(self):
        return None if self.value.replica is None else self.value.replica.world_size

    def receive(self, command, now):
        self.value, reactions = messages.worker_receive(self.value, command, now)
        return tuple(each for each in reactions if not isinstance(each, Refused))

    def user_code_ended(self, ran, now, failure=None):
        self.value, reactions = messages.worker_user_code_ended(self.value, ran, now, failure)
        return reactions

    def leave(self):
        self.value = leave(self.value)
