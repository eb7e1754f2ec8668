"""Credits on the router's side: how much of a replica is this router's (C2), and when to ask for more (C3)."""

from rankcore.routing.commands import AskCredits, ReturnCredits
from rankcore.routing.events import CreditsGranted
from rankcore.routing.notes import RoutingNoteKind
from rankcore.routing.records import Request, RoutedReplica
from rankcore.routing.tables import Tables


def ask_for(tables: Tables, request: Request) -> None:
    """A request waits: the replica of its rank, or the next of those that it may go to and that were not asked since their last
    grant, is asked.
    """
    if request.ranked:
        named = (tables.replicas.get(each) for group in request.ranked for each in group)
        replica = next((each for each in named if each is not None and each.birth in tables.to_ask), None)
    elif request.rank is None:
        replica = next(iter(tables.to_ask.values()), None)
    else:
        replica = tables.holder_of(request.rank)
    if replica is not None and replica.birth in tables.to_ask:
        _ask(tables, replica)


def ask_again(tables: Tables, replica: RoutedReplica) -> None:
    """A replica has said how much it grants: if something still waits for it, it is asked for more."""
    is_for_anyone = tables.waiting_for(replica) if tables.choice.asks else tables.anyone
    waited_for = is_for_anyone or (replica.rank in tables.ranked and tables.holder_of(replica.rank) is replica)
    if waited_for and replica.birth in tables.to_ask:
        _ask(tables, replica)


def _ask(tables: Tables, replica: RoutedReplica) -> None:
    del tables.to_ask[replica.birth]
    tables.asked[replica.birth] = replica
    wanted = min(tables.spec.max_ongoing_requests, len(replica.flights) + max(1, tables.waiting_for(replica)))
    tables.commands.append(AskCredits(replica.replica_id, max(wanted, replica.credits + 1), replica.version))


def may_ask(tables: Tables, replica: RoutedReplica) -> None:
    """Keep the replicas that could grant more in the order in which they are to be asked."""
    if tables.spec.by_credits and replica.routed and replica.credits < tables.spec.max_ongoing_requests:
        tables.to_ask.setdefault(replica.birth, replica)
    else:
        tables.to_ask.pop(replica.birth, None)
        tables.asked.pop(replica.birth, None)


def need_no_more(tables: Tables) -> None:
    """Nothing waits any more: who was asked for credits need not keep them for this router, nor call others' back."""
    for birth in sorted(tables.asked):
        replica = tables.asked.pop(birth)
        tables.commands.append(AskCredits(replica.replica_id, 0, replica.version))
        may_ask(tables, replica)


def granted(tables: Tables, event: CreditsGranted) -> RoutedReplica | None:
    """A grant has come.

    Returns:
        The replica, whose limit is to be looked at again; None: the grant changes nothing.
    """
    replica = tables.replicas.get(event.replica_id)
    if replica is None or event.version < replica.version or not tables.spec.by_credits:
        known = f"{replica.version} is known" if replica is not None else "nobody knows the replica"
        tables.note(RoutingNoteKind.LATE, "C2", None, event.replica_id, f"version {event.version} of a grant, {known}")
        return None
    if event.version == replica.version:
        _promise(tables, replica)
        tables.note(RoutingNoteKind.LATE, "C2", None, event.replica_id, "a repeated grant is answered again")
        return None
    before, replica.credits, replica.version = replica.credits, event.credits, event.version
    # What an earlier recall left in flight is still owed, though there are more credits again than it left.
    held, replica.returned = max(before, replica.returned or 0), None
    if event.credits < held:
        tables.asked.pop(replica.birth, None)  # the replica forgets it with the answer; what waits asks again
        _promise(tables, replica)
    may_ask(tables, replica)
    why = f"{before} -> {event.credits} by version {event.version}"
    tables.note(RoutingNoteKind.CREDITS_CHANGED, "C2", None, event.replica_id, why)
    return replica


def landed(tables: Tables, replica: RoutedReplica) -> None:
    """Something that a replica had in flight has ended: one more credit that it called back can be returned."""
    if replica.returned is not None and replica.returned > max(replica.credits, len(replica.flights)):
        _promise(tables, replica)


def _promise(tables: Tables, replica: RoutedReplica) -> None:
    replica.returned = max(replica.credits, len(replica.flights))
    tables.commands.append(ReturnCredits(replica.replica_id, replica.returned, replica.version))
