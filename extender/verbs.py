"""filter and prioritize: which nodes can take a pod, and which of them suits it best.

Both read the ledger and change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from extender.wire import ExtenderArgs, FilterResult, HostPriority, NodeList, node_name
from gpushare.bookings import PodRef
from gpushare.demand import Demand, Share, demand_of
from gpushare.ledger import Ledger
from gpushare.nominations import Nominated, Nominations, choose_beside
from gpushare.placement import Policy, policy_of, preference_of, rank_scores
from gpushare.refusals import Reason


def filter_nodes(
    args: ExtenderArgs, *, ledger: Ledger, nominations: Nominations, policy: Policy
) -> FilterResult:
    """Sort the nodes asked about into those with room and those without, each with its reason.

    The answer has the shape of the question. Raises `DemandError` or `PolicyError` for a pod that no
    scheduler could place, and `WireError` for a node without a name.
    """
    demand = demand_of(args.pod.spec, ledger.names)
    wanted = policy_of(args.pod.annotations, names=ledger.names, default=policy)  # a typo shows before bind
    names = args.names()
    fitting = names if demand is None else _fitting(names, demand=demand, ledger=ledger, policy=wanted)
    if demand is not None:
        ahead = nominations.ahead(PodRef.of(args.pod), among=fitting, default=policy)
        held = {
            name
            for name, before in ahead.items()
            if choose_beside(ledger.view(name), demand=demand, policy=wanted, ahead=before) is None
        }
        fitting = [name for name in fitting if name not in held] if held else fitting
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    if demand is not None and len(fitting) < len(names):
        failed, unresolvable = _refusals(names, fitting=set(fitting), demand=demand, ledger=ledger)
    return FilterResult(
        nodes=_pick(args.nodes, fitting=fitting),
        node_names=None if args.node_names is None else fitting,
        failed_nodes=failed,
        failed_and_unresolvable_nodes=unresolvable,
    )


def prioritize_nodes(
    args: ExtenderArgs, *, ledger: Ledger, nominations: Nominations, policy: Policy
) -> list[HostPriority]:
    """Score the nodes asked about from 0 to 10; exactly one gets 10 unless none has room.

    Raises what `filter_nodes` raises.
    """
    names = args.names()
    demand = demand_of(args.pod.spec, ledger.names)
    wanted = policy_of(args.pod.annotations, names=ledger.names, default=policy)
    scores = {}
    if demand is not None:
        ahead = nominations.ahead(PodRef.of(args.pod), among=names, default=policy)
        scores = _score(names, demand=demand, ledger=ledger, policy=wanted, ahead=ahead)
    return [HostPriority(host=name, score=scores.get(name, 0)) for name in names]


def _fitting(names: list[str], *, demand: Demand, ledger: Ledger, policy: Policy) -> list[str]:
    if len(demand.cards) == 1:
        fits = ledger.with_room(demand.cards[0])
    else:
        fits = {name for *_, name in ledger.preferences(names, demand=demand, policy=policy)}
    return names if fits.issuperset(names) else [name for name in names if name in fits]


def _refusals(
    names: Sequence[str], *, fitting: Set[str], demand: Demand, ledger: Ledger
) -> tuple[dict[str, str], dict[str, str]]:
    """The reasons of the nodes that do not fit: worth a retry, and impossible."""
    rest = [name for name in names if name not in fitting]
    failed: dict[str, str] = {}
    if len(demand.cards) == 1:  # the common reason of a full cluster, without a call per node
        share = demand.cards[0]
        hold, have_left = ledger.with_card(share), ledger.with_room(Share(memory=share.memory))
        failed = {name: _NO_ROOM for name in rest if name in hold and name not in have_left}
    unresolvable: dict[str, str] = {}
    for name in rest:
        if name not in failed:
            refusal = ledger.view(name).refusal(demand)
            if refusal is None:  # what is there is left to a pod that the node is being cleared for
                failed[name] = _NO_ROOM if len(demand.cards) == 1 else _TOO_FEW_CARDS
            else:
                (unresolvable if refusal.unresolvable else failed)[name] = str(refusal)
    return failed, unresolvable


_NO_ROOM = str(Reason.NO_ROOM)
_TOO_FEW_CARDS = str(Reason.TOO_FEW_CARDS)


def _pick(nodes: NodeList | None, *, fitting: Sequence[str]) -> NodeList | None:
    if nodes is None:
        return None
    chosen = set(fitting)
    return NodeList(
        items=[raw for raw in nodes.items or () if node_name(raw) in chosen], metadata=nodes.metadata
    )


def _score(
    names: Sequence[str],
    *,
    demand: Demand,
    ledger: Ledger,
    policy: Policy,
    ahead: Mapping[str, Sequence[Nominated]],
) -> dict[str, int]:
    others = set(names)
    others.difference_update(ahead)
    preferences = ledger.preferences(others, demand=demand, policy=policy)
    for name, before in ahead.items():
        view = ledger.view(name)
        chosen = choose_beside(view, demand=demand, policy=policy, ahead=before)
        if chosen is not None:
            preferred = view.rooms[policy]
            preferences.append(preference_of(chosen, preferred=preferred, policy=policy, name=name))
    return rank_scores([name for *_, name in sorted(preferences)])
