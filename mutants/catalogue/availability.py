"""Routers while nobody serves, nor is about to: Q11."""

from mutants.mutant import Mutant

PATH = "rankcore/routing/availability.py"

AVAILABILITY = (
    Mutant(
        "nobody-serves-for-ever",
        "Q11",
        "that nobody serves is never lifted",
        PATH,
        "        tables.unavailable = None\n        tables.note(",
        "        tables.note(",
    ),
    Mutant(
        "its-time-never-passes",
        "Q11",
        "that nobody serves for a while lasts until it is lifted",
        PATH,
        "NEVER if event.lasts_s is None else tables.clock + event.lasts_s",
        "NEVER",
    ),
    Mutant(
        "newcomers-are-not-refused",
        "Q11",
        "requests that come while nobody serves wait",
        "rankcore/routing/queueing.py",
        "    if tables.closed or tables.unavailable_now is not None:\n",
        "    if tables.closed:\n",
    ),
    Mutant(
        "who-comes-back-waits",
        "Q11",
        "a request that is to be done again while nobody serves waits",
        "rankcore/routing/router.py",
        "            elif request.waits and self.unavailable_now is not None:\n"
        "                endings.turn_away(self, self.requests[request.request_id], 0)\n",
        "",
    ),
    Mutant(
        "those-that-wait-go-on-waiting",
        "Q11",
        "requests that wait when nobody serves any more are not failed",
        PATH,
        "    if tables.unavailable_now is not None:\n",
        "    if tables.unavailable_now is None:\n",
    ),
    Mutant(
        "those-with-a-route-fail",
        "Q11",
        "the news that nobody serves is believed beside a route",
        PATH,
        "    if any_routed(tables):  # 3\n",
        "    if event.lasts_s is not None and any_routed(tables):\n",
    ),
)
