"""All mutants: a module for each part of the promises, in the order of the design."""

from mutants.catalogue.availability import AVAILABILITY
from mutants.catalogue.cluster import CLUSTER
from mutants.catalogue.contract import CONTRACT
from mutants.catalogue.evictions import EVICTIONS
from mutants.catalogue.executors import EXECUTORS
from mutants.catalogue.failures import FAILURES
from mutants.catalogue.gang import GANG
from mutants.catalogue.overlap import OVERLAP
from mutants.catalogue.ranks import RANKS
from mutants.catalogue.readiness import READINESS
from mutants.catalogue.recovery import RECOVERY
from mutants.catalogue.replicas import REPLICAS
from mutants.catalogue.requests import REQUESTS
from mutants.catalogue.residency import RESIDENCY
from mutants.catalogue.rollouts import ROLLOUTS
from mutants.catalogue.scarcity import SCARCITY
from mutants.catalogue.static import STATIC
from mutants.catalogue.tenures import TENURES_AND_DEMAND
from mutants.catalogue.updates import UPDATES
from mutants.mutant import Mutant

_OF_RANKS = (
    *RANKS, *RECOVERY, *REQUESTS, *UPDATES, *FAILURES, *EVICTIONS, *CONTRACT, *STATIC, *SCARCITY, *ROLLOUTS,
    *OVERLAP, *READINESS,
)  # fmt: skip
ALL: dict[str, Mutant] = {each.name: each for each in _OF_RANKS}
"""Of ranks, placement and requests."""
MODELS: dict[str, Mutant] = {each.name: each for each in RESIDENCY}
"""Of the planner of weights."""
PLANE: dict[str, Mutant] = {each.name: each for each in (*CLUSTER, *TENURES_AND_DEMAND, *AVAILABILITY)}
"""Of the cluster around deployments and weights, and of routers and calls while nobody serves."""
GANGS: dict[str, Mutant] = {each.name: each for each in GANG}
"""Of gangs of agents that meet in rounds."""
OF_EXECUTORS: dict[str, Mutant] = {each.name: each for each in (*EXECUTORS, *REPLICAS)}
"""Of an executor, and of the replica's half of the contract."""
