"""A scenario's deployments as a cluster has them: `application/deployment`, with weights that may be COLD."""

from collections.abc import Sequence

import attrs

from executors.deployment_ids import DEFAULT_APPLICATION, deployment_id, own_name
from executors.simulator.fields import FieldProblem
from executors.simulator.scenario.model import Deployment, Scenario
from executors.simulator.scenario.weights import ScenarioResidency, Size
from rankcore import DeploymentSpec
from rankcore.cluster import ApplicationSpec, EntrySpec
from rankcore.cluster.names import DeploymentId, application_of
from rankcore.cluster.residency import ResidencySpec
from rankcore.errors import InvalidSpecError


def id_of(name: str) -> DeploymentId:
    """What the core calls a deployment of a scenario."""
    return name if "/" in name else deployment_id(DEFAULT_APPLICATION, name)


def shown(found: str) -> str:
    """An id of a deployment, replica or worker as the report has it: without the application that nobody named."""
    return own_name(DEFAULT_APPLICATION, found)


def entries_of(scenario: Scenario) -> tuple[EntrySpec, ...]:
    """What a user wants of each deployment, in the order of the scenario.

    Raises:
        FieldProblem: One of them cannot be had; with its key path.
    """
    return tuple(_entry(index, each, scenario.sizes[each.spec.name]) for index, each in enumerate(scenario.deployments))


def applications_of(entries: Sequence[EntrySpec]) -> tuple[ApplicationSpec, ...]:
    """The same, by application."""
    found: dict[str, list[EntrySpec]] = {}
    for entry in entries:
        found.setdefault(application_of(entry.deployment), []).append(entry)
    return tuple(ApplicationSpec(name=name, deployments=tuple(each)) for name, each in found.items())


def changed(entry: EntrySpec, spec: DeploymentSpec) -> EntrySpec:
    """With other ranks."""
    return attrs.evolve(entry, ranks=attrs.evolve(spec, name=entry.deployment))


def _entry(index: int, deployment: Deployment, size: Size) -> EntrySpec:
    assert deployment.residency is not None, f"{deployment.spec.name} has no residency"
    name = id_of(deployment.spec.name)
    try:
        return EntrySpec(
            ranks=attrs.evolve(deployment.spec, name=name),
            autoscaling=deployment.autoscaling,
            routing=attrs.evolve(deployment.routing, name=name),
            residency=_spec(deployment.residency, size),
        )
    except InvalidSpecError as error:
        key = error.field.rpartition(".")[2]
        raise FieldProblem(("deployments", index, key), error.found, error.allowed) from None


def _spec(residency: ScenarioResidency, size: Size) -> ResidencySpec:
    same = [field.name for field in attrs.fields(ResidencySpec) if field.name in attrs.fields_dict(ScenarioResidency)]
    values = {name: getattr(residency, name) for name in same}
    return ResidencySpec(weight_bytes=size.weight_bytes, working_bytes=size.working_bytes, **values)
