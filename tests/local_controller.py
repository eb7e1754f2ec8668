"""The controller of `rankcore run --executor local`, in a folder that a test gives it."""

from functools import partial

from executors.controller import Controller
from executors.local.plugin import LocalOptions, begin
from executors.run.folder_fence import FolderFence


def local_controller(folder, application, spec, open_journal=None, nodes=("local",), version_now=None, name="local"):
    makes = partial(begin, options=LocalOptions(nodes=nodes))
    return Controller(folder, application, spec, FolderFence(folder), makes, open_journal, version_now, name)
