"""One GPU of 4 units, models of 1, 3 and 4; a load of b units takes b ticks, one after the other; who leaves is gone in a tick."""
import sys
from types import SimpleNamespace as NS
import attrs, msgspec
from msgspec.structs import replace
from rankcore.events import ClockAdvanced
from rankcore.kernel import Violation
from rankcore.residency import *
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import *
from rankcore.residency.invariants import check, check_step
from rankcore.residency.invariants.line import overdue
from rankcore.residency.spec import ResidencyPolicy
from rankcore.testing.explorable import SelfChecked
from rankcore.testing.explore import Allowance, explored
from rankcore.testing.model_residency.driving import DrivenPlanner, driven
from rankcore.testing.model_residency.world import Given
SIZES = [int(x) for x in sys.argv[1].split(",")]; AGING=float(sys.argv[3]) if len(sys.argv)>3 else 1000.0
SPECS = [ModelSpec(model=f"m{i}", weight_bytes=b, keeps_copy=False) for i, b in enumerate(SIZES)]
POLICY = ResidencyPolicy(disk_bytes_per_s=1, host_bytes_per_s=1000000, drain_timeout_s=1.0, turn_factor=float(sys.argv[4]) if len(sys.argv)>4 else 1.0, aging_s=AGING, recent_use_s=1.0, recent_cost_bytes=0, in_flight_cost_bytes=1)

@attrs.frozen
class W:
    p: DrivenPlanner
    given: tuple = ()   # (command, ticks left)

def tell(w, event, bad):
    planner, told = driven(w.p, event)
    given = list(w.given)
    for before, each, step in told:
        bad += check(step.state); bad += check_step(before, each, step); bad += overdue(step.state)
        for c in step.commands:
            if isinstance(c, Given):
                given = [g for g in given if g[0].replica_id != c.replica_id]
                given.append((c, sum(c.gpu_bytes) if isinstance(c, LoadToGpu) else 1))
    return W(planner, tuple(given))

class Turns(SelfChecked):
    imports=""; rest_rule="T12"; fair=("tick",)
    def start(self):
        return tell(W(DrivenPlanner(open_residency(POLICY))), NodeJoined(node_id="n0", gpu_bytes=(4,), cpu_bytes=0, at=0.0), [])
    def moves(self, w):
        s = w.p.state
        if w.given or (s.waking is not None and s.waking > s.clock): yield ("tick", 0)
        for i, m in enumerate(SPECS):
            if not s.target(m.model): yield ("call", i)
            for r in s.replicas.values():
                if r.model == m.model and r.phase is Phase.SERVING: yield ("used", i) if not r.in_flight else ("ends", i)
    def make(self, w, move):
        bad=[]; what,i=move; s=w.p.state; at=s.clock
        if what=="call": w=tell(w, DeployRequested(wanted=(Wanted(spec=SPECS[i], replicas=1),), at=at), bad)
        elif what in ("used","ends"):
            r=next(r for r in s.replicas.values() if r.model==SPECS[i].model and r.phase is Phase.SERVING)
            w=tell(w, ReplicaUsed(replica_id=r.replica_id, in_flight=int(what=="used"), at=at), bad)
        else:
            at=at+1.0; disk=1; out=[]; done=[]
            for c,left in w.given:
                if isinstance(c, LoadToGpu):
                    if disk: disk=0; left-=1
                else: left-=1
                (out if left>0 else done).append((c,left))
            w=W(w.p, tuple(out))
            first=True
            for c,_ in done:
                k=LoadFinished if isinstance(c, LoadToGpu) else OffloadFinished
                w=tell(w, k(replica_id=c.replica_id, move=c.move, at=at), bad)
            if not done: w=tell(w, ClockAdvanced(at=at), bad)
        return w, tuple(bad)
    def unsettled(self, w):
        s=w.p.state
        return [Violation("T12", f"{s.head} stays first for ever")] if s.head is not None else []
    def key(self, w):
        s=w.p.state; now=s.clock
        # Ids by rank of serial: what a replica is called does not matter.
        ids=sorted(s.replicas, key=lambda r:int(r.partition("#")[2])); name={r:f"{r.partition('#')[0]}#{i}" for i,r in enumerate(ids)}
        rel=lambda t: None if t is None else round(t-now,3)
        far=lambda t: max(-12.0, t-now)
        recs=[(name[r], str((x:=s.replicas[r]).phase), str(x.level), x.gpu_bytes, x.need_bytes, [name.get(v,v) for v in x.waits_for], name.get(x.makes_room_for, x.makes_room_for), far(x.since), far(x.last_used), None if x.hot_since is None else far(x.hot_since), x.in_flight, x.turn_s, rel(x.due_at)) for r in ids]
        n=s.nodes["n0"]
        asked=sorted(set(s.asked.values()))
        return msgspec.msgpack.encode((recs, None if s.head is None else (name[s.head.replica_id], far(s.head.since)), [(c.replica_id and name[c.replica_id], type(c).__name__, l) for c,l in w.given], n.from_disk and round(n.from_disk[0]/n.from_disk[1],6), None if not n.shared_at>=0 else max(-12,n.shared_at-now), rel(s.waking) if s.waking and s.waking>now else None, [(m,asked.index(s.asked[m])) for m in sorted(s.asked)], [(m, w.p.called_for[m].replicas) for m in sorted(w.p.called_for)]))
sys.stdout.reconfigure(line_buffering=True)
r=explored(Turns(None), Allowance(states=int(sys.argv[2])))
print("complete", r.complete, {k:(v if isinstance(v,(int,float,str)) else (len(v) if hasattr(v,"__len__") else "")) for k,v in vars(r).items()})
if r.broken: print(r.broken.moves, r.broken.violations)
