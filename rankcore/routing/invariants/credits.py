"""Promises about what a replica has granted."""

from rankcore.kernel import Violation
from rankcore.routing.credits import CreditBook


def check_credits(book: CreditBook) -> list[Violation]:
    """C1, C2 and C4 of a book whose limit was never lowered; empty when all hold."""
    found = []
    if book.held > book.limit:
        found.append(Violation("C1", f"{book.held} credits of {book.limit} are held"))
    for router_id, holder in sorted(book.holders.items()):
        versions = [grant.version for grant in holder.grants]
        credits = [grant.credits for grant in holder.grants]
        if sorted(set(versions)) != versions or sorted(set(credits), reverse=True) != credits:
            found.append(Violation("C2", f"{router_id} has the grants {holder.grants}"))
        if holder.at_work > holder.held:
            found.append(Violation("C1", f"{router_id} has {holder.at_work} at work and {holder.held} credits"))
        if holder.lost and not holder.held == holder.at_work > 0:
            found.append(Violation("C4", f"{router_id} is lost, and holds {holder.held} for {holder.at_work} at work"))
    return found
