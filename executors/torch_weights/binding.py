"""A module whose parameters are the weights themselves, while they are HOT, and have a shape but no memory while they are not.

Nothing is copied: `load_state_dict(assign=True)` puts the tensors in the place of parameters. Tensors that the module has under
several names (tied weights) need one name in the file, and stay one.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from executors.torch_weights.errors import UnknownBuffersError, WeightsMismatchError
from executors.torch_weights.unsaved import compute_unsaved, unsaved


class BoundModule:
    """A module that weights come to and go from.

    It starts as it is: `unbind` gives up the parameters that it has. A module that was made on the meta device has none.
    Buffers that are not saved with a module (`persistent=False`) keep the values that they have, and move along; `unsaved` says
    where those on the meta device get theirs.

    Args:
        module: Any; its parameters and buffers are replaced by others of the same names.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._names = _names_by_tensor(module)
        self._shapes = {name: tuple(each.shape) for name, each in _saved(module).items()}
        self._trained = {name: each.requires_grad for name, each in _saved(module).items()}
        self._parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        self._dtypes = {name: each.dtype for name, each in _saved(module).items()}
        lost = compute_unsaved(module)
        if lost:
            raise UnknownBuffersError(lost)
        self._unsaved = list(unsaved(module))

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Whether tensors of these names and shapes are what the module wants.

        Raises:
            WeightsMismatchError: They are not; it names all that is wrong.
        """
        missing = [names[0] for names in self._names if not any(name in shapes for name in names)]
        unexpected = [name for name in shapes if name not in self._shapes]
        misshapen = [
            (name, self._shapes[name], shape) for name, shape in shapes.items() if self._shapes.get(name, shape) != shape
        ]
        if missing or unexpected or misshapen:
            raise WeightsMismatchError(sorted(missing), sorted(unexpected), sorted(misshapen))

    def bind(self, tensors: Mapping[str, Tensor]) -> None:
        """Make these its parameters and buffers, without a copy.

        Raises:
            WeightsMismatchError: They are not those that it wants. It is as it was.
        """
        self.check({name: tuple(each.shape) for name, each in tensors.items()})
        found: dict[str, Tensor] = {}
        for names in self._names:
            tensor = next(tensors[name] for name in names if name in tensors)
            found |= dict.fromkeys(names, self._as_held(names[0], tensor))
        self.module.load_state_dict(found, strict=True, assign=True)
        first = next((each.device for each in tensors.values()), None)
        for _, owner, name, value in self._unsaved:
            home = next((each.device for each in owner.parameters() if not each.is_meta), None)
            owner.register_buffer(name, value.to(home or first or value.device), persistent=False)

    def unbind(self) -> None:
        """Give all tensors up. Whoever calls the module now is told by torch that its tensors are meta tensors."""
        found: dict[str, Tensor] = {}
        for names in self._names:
            empty = torch.empty(self._shapes[names[0]], dtype=self._dtypes[names[0]], device="meta")
            found |= dict.fromkeys(names, self._as_held(names[0], empty))
        self.module.load_state_dict(found, strict=True, assign=True)
        for _, owner, name, value in self._unsaved:
            owner.register_buffer(name, value, persistent=False)

    def _as_held(self, name: str, tensor: Tensor) -> Tensor:
        # One Parameter for all names of a tied tensor: torch would make one of each name.
        if name not in self._parameters:
            return tensor
        return nn.Parameter(tensor, requires_grad=self._trained[name] and tensor.dtype.is_floating_point)


def _saved(module: nn.Module) -> dict[str, Tensor]:
    # keep_vars: the very objects, so that one under two names is seen to be one.
    found: dict[str, Tensor] = {
        name: value for name, value in module.state_dict(keep_vars=True).items() if isinstance(value, Tensor)
    }
    return found


def _names_by_tensor(module: nn.Module) -> list[list[str]]:
    found: dict[int, list[str]] = {}
    for name, value in _saved(module).items():
        found.setdefault(id(value), []).append(name)
    return list(found.values())
