"""filter and prioritize: which nodes can take a pod, and which of them suits it best.

Both read the ledger and change nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from extender.wire import ExtenderArgs, FilterResult, HostPriority, NodeList, node_name
from gpushare.demand import Demand, demand_of
from gpushare.ledger import Ledger
from gpushare.placement import Policy, node_preference, policy_of, rank_scores
from gpushare.views import NO_ROOM


def filter_nodes(args: ExtenderArgs, *, ledger: Ledger, policy: Policy) -> FilterResult:
    """Sort the nodes asked about into those with room and those without, each with its reason.

    The answer has the shape of the question. Raises `DemandError` or `PolicyError` for a pod that no
    scheduler could place, and `WireError` for a node without a name.
    """
    demand = demand_of(args.pod.spec, ledger.names)
    policy_of(args.pod.annotations, names=ledger.names, default=policy)  # a typo shows now, not at bind
    names = args.names()
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    fitting = _sort(names, demand=demand, ledger=ledger, failed=failed, unresolvable=unresolvable)
    return FilterResult(
        nodes=_pick(args.nodes, fitting=fitting),
        node_names=None if args.node_names is None else fitting,
        failed_nodes=failed,
        failed_and_unresolvable_nodes=unresolvable,
    )


def prioritize_nodes(args: ExtenderArgs, *, ledger: Ledger, policy: Policy) -> list[HostPriority]:
    """Score the nodes asked about from 0 to 10; exactly one gets 10 unless none has room.

    Raises what `filter_nodes` raises.
    """
    names = args.names()
    demand = demand_of(args.pod.spec, ledger.names)
    wanted = policy_of(args.pod.annotations, names=ledger.names, default=policy)
    scores = {} if demand is None else _score(names, demand=demand, ledger=ledger, policy=wanted)
    return [HostPriority(host=name, score=scores.get(name, 0)) for name in names]


def _sort(
    names: Sequence[str],
    *,
    demand: Demand | None,
    ledger: Ledger,
    failed: dict[str, str],
    unresolvable: dict[str, str],
) -> list[str]:
    if demand is None:
        return list(names)
    if len(demand.cards) == 1:
        memory, slots = demand.cards[0].memory, demand.cards[0].slots
    else:
        memory = slots = _NO_SHORT_CUT
    fitting = []
    for name, view in zip(names, ledger.views(names), strict=True):
        if memory <= view.free_memory and slots <= view.free_slots:
            fitting.append(name)  # what `refusal` would say, without the call: 5,000 nodes a filter
            continue
        refusal = view.refusal(demand)
        if refusal is None:
            fitting.append(name)
        elif refusal is NO_ROOM:
            failed[name] = _NO_ROOM_TEXT
        elif refusal.unresolvable:
            unresolvable[name] = str(refusal)
        else:
            failed[name] = str(refusal)
    return fitting


_NO_SHORT_CUT = sys.maxsize
_NO_ROOM_TEXT = str(NO_ROOM)


def _pick(nodes: NodeList | None, *, fitting: Sequence[str]) -> NodeList | None:
    if nodes is None:
        return None
    chosen = set(fitting)
    return NodeList(
        items=[raw for raw in nodes.items or () if node_name(raw) in chosen], metadata=nodes.metadata
    )


def _score(names: Sequence[str], *, demand: Demand, ledger: Ledger, policy: Policy) -> dict[str, int]:
    preferences = []
    for view in ledger.views(set(names)):
        if view.refusal(demand) is None:
            preference = node_preference(demand, preferred=view.rooms[policy], policy=policy, name=view.name)
            if preference is not None:
                preferences.append(preference)
    return rank_scores([name for *_, name in sorted(preferences)])
