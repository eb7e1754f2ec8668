"""The rules of a rank table written down a second time, as plainly as possible: dicts, sorted lists, scans everywhere.

Shares no code with `rankcore.ranks` and knows none of its shortcuts. Ranks are tuples (rank, node rank, local rank).
"""

from itertools import count


class NaiveRanks:
    def __init__(self):
        self.rank = {}  # replica -> global rank, in the order of arrival
        self.node = {}  # replica -> node
        self.local = {}  # replica -> local rank
        self.node_rank = {}  # node -> node rank

    def copy(self):
        other = NaiveRanks()
        for name in ("rank", "node", "local", "node_rank"):
            setattr(other, name, dict(getattr(self, name)))
        return other

    def view(self):
        """Everything that can be asked."""
        return {each: (self.of(each), self.node[each]) for each in self.rank}

    def of(self, replica):
        return (self.rank[replica], self.node_rank[self.node[replica]], self.local[replica])

    def on(self, node):
        return [replica for replica in self.node if self.node[replica] == node]

    def assign(self, replica, node):
        self.rank[replica] = lowest_not_in(self.rank.values())
        self._place(replica, node)
        return self.of(replica)

    def release(self, replica):
        node = self.node[replica]
        for book in (self.rank, self.node, self.local):
            del book[replica]
        if not self.on(node):
            del self.node_rank[node]

    def replace(self, old, new, node):
        rank = self.rank[old]
        self.release(old)
        self.rank[new] = rank
        self._place(new, node)
        return self.of(new)

    def _place(self, replica, node):
        self.local[replica] = lowest_not_in(self.local[other] for other in self.on(node))
        self.node[replica] = node
        if node not in self.node_rank:
            self.node_rank[node] = lowest_not_in(self.node_rank.values())

    def can_recover(self, replica, node, ranks):
        rank, node_rank, local = ranks
        if replica in self.rank or rank in self.rank.values():
            return False
        if node not in self.node_rank:
            return node_rank not in self.node_rank.values()
        return local not in [self.local[other] for other in self.on(node)]

    def recover_one(self, replica, node, ranks):
        self.rank[replica], node_rank, self.local[replica] = ranks
        self.node[replica] = node
        self.node_rank.setdefault(node, node_rank)

    def compact(self, size):
        """Bring down what is too high, and only that; returns {replica: (before, after)}."""
        before = {each: self.of(each) for each in self.rank}
        bring_down(self.rank, size)
        bring_down(self.node_rank, len(self.node_rank))
        for node in self.node_rank:
            there = {replica: self.local[replica] for replica in self.on(node)}
            bring_down(there, len(there))
            self.local.update(there)
        return {each: (old, self.of(each)) for each, old in before.items() if old != self.of(each)}

    @classmethod
    def recover(cls, reports):
        """From [(replica, node, ranks)], the oldest first; returns the table and {replica: (reported, now)}."""
        table = cls()
        for replica, node, (rank, _, local) in reports:
            table.rank[replica], table.node[replica], table.local[replica] = rank, node, local
        for _, node, (_, node_rank, _) in reports:
            table.node_rank.setdefault(node, node_rank)
        settle(table.rank, {ranks[0] for _, _, ranks in reports})
        settle(table.node_rank, {ranks[1] for _, _, ranks in reports})
        for node in table.node_rank:
            there = {replica: table.local[replica] for replica in table.on(node)}
            settle(there, set(there.values()))
            table.local.update(there)
        return table, {each: (ranks, table.of(each)) for each, _, ranks in reports if ranks != table.of(each)}


def lowest_not_in(numbers):
    taken = set(numbers)
    return next(number for number in count() if number not in taken)


def bring_down(numbers, bound):
    """Change `numbers`, a dict, in place: those >= bound, in ascending order, to the lowest free ones."""
    for key in sorted(numbers, key=numbers.get):
        if numbers[key] >= bound:
            numbers[key] = lowest_not_in(numbers.values())


def settle(numbers, reported):
    """Change `numbers`, a dict in the order of age, in place: the later of two equal ones gets one nobody reported."""
    seen, given = set(), set()
    for key in numbers:
        if numbers[key] in seen:
            numbers[key] = lowest_not_in(reported | given)
            given.add(numbers[key])
        else:
            seen.add(numbers[key])
