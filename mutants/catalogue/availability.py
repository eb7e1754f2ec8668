"""What routers, calls and the controller tell each other of a deployment that nobody serves: Q11, Q12, Q13."""

from mutants.mutant import Mutant

PATH = "rankcore/routing/availability.py"
STATUSES = "rankcore/routing/statuses.py"
DEMAND = "rankcore/routing/demand.py"

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
    Mutant(
        "an-overtaken-status-is-shown",
        "Q12",
        "a call is shown a status that a newer one has overtaken",
        STATUSES,
        "    if shown.is_over or number <= shown.number:\n",
        "    if shown.is_over or number == shown.number:\n",
    ),
    Mutant(
        "told-after-the-answer",
        "Q12",
        "a call is shown statuses after its answer",
        STATUSES,
        "    if shown.is_over or number <= shown.number:\n",
        "    if number <= shown.number:\n",
    ),
    Mutant(
        "the-same-is-shown-twice",
        "Q12",
        "a call is shown a status that says what the one before said",
        STATUSES,
        "number=number, content=content), content != shown.content\n",
        "number=number, content=content), True\n",
    ),
    Mutant(
        "statuses-as-fast-as-they-change",
        "Q12",
        "a process is told of each percent",
        STATUSES,
        "max(at, told_at + TELL_EVERY_S) if",
        "at if",
    ),
    Mutant(
        "every-change-is-reported",
        "Q13",
        "what waits is reported as often as it changes",
        DEMAND,
        "reporting.at + (AGAIN_S if count == before else REPORT_EVERY_S))",
        "reporting.at + AGAIN_S if count == before else at)",
    ),
    Mutant(
        "an-empty-line-is-reported-at-once",
        "Q13",
        "that nothing waits is reported without waiting whether that lasts",
        DEMAND,
        "zero_at = since + ZERO_FOR_S\n",
        "zero_at = since\n",
    ),
    Mutant(
        "reported-once",
        "Q13",
        "what goes on waiting is not reported again",
        DEMAND,
        "(AGAIN_S if count == before else REPORT_EVERY_S)",
        "(NEVER if count == before else REPORT_EVERY_S)",
    ),
    Mutant(
        "a-late-report-revives-demand",
        "Q13",
        "of a process the report that arrives last counts",
        DEMAND,
        "(incarnation, report.seq) <= (known.incarnation, known.seq)",
        "(incarnation, report.seq) == (known.incarnation, known.seq)",
    ),
    Mutant(
        "the-dead-wait-for-ever",
        "Q13",
        "what a process has reported counts until it reports something else",
        DEMAND,
        "if count and at < heard_at + COUNTS_S}",
        "if count}",
    ),
    Mutant(
        "who-begins-again-speaks-for-both",
        "Q13",
        "what a process said before it was started again counts on",
        DEMAND,
        "known is not None and known.incarnation == incarnation else EMPTY",
        "known is not None else EMPTY",
    ),
)
