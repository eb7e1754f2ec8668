"""All mutants: a module for each part of the promises, in the order of the design."""

from mutants.catalogue.contract import CONTRACT
from mutants.catalogue.ranks import RANKS
from mutants.catalogue.recovery import RECOVERY
from mutants.catalogue.requests import REQUESTS
from mutants.catalogue.static import STATIC
from mutants.catalogue.updates import UPDATES
from mutants.mutant import Mutant

ALL: dict[str, Mutant] = {each.name: each for each in (*RANKS, *RECOVERY, *REQUESTS, *UPDATES, *CONTRACT, *STATIC)}
