"""preempt: whom to evict from which node so that a more important pod finds a card.

kube-scheduler proposes victims by the nodes' sums; `gpushare.preemption` looks at the cards. Reads the
ledger and changes nothing: kube-scheduler evicts, and the pod comes back to filter once the victims are gone.
"""

from __future__ import annotations

import logging

from extender.slices import in_slices
from extender.wire import MetaPod, MetaVictims, PreemptionArgs, PreemptionResult
from gpushare.bookings import PodRef
from gpushare.demand import Demand, demand_of
from gpushare.ledger import Ledger
from gpushare.nominations import Nominations
from gpushare.placement import Policy
from gpushare.preemption import Preemptor, choose_victims

log = logging.getLogger(__name__)

_PATIENCE = 100_000
"""How often all searches of one request together may ask (see `gpushare.victims`): about a second."""
_LEAST_PATIENCE = 200


async def choose_nodes(
    args: PreemptionArgs, *, ledger: Ledger, nominations: Nominations, policy: Policy
) -> PreemptionResult:
    """Keep, extend or replace kube-scheduler's victims node by node; nodes where nothing helps are left out.

    Always answers with UIDs. The number of violated disruption budgets is kube-scheduler's own, at most one
    a victim: nobody tells which of its victims it counted, and of others we know none. `policy` is of pods
    that ask for none. Raises `DemandError` for a pod that no scheduler could place.
    """
    demand = demand_of(args.pod.spec, ledger.names)
    preemptor = Preemptor(demand=demand or _NO_CARD, priority=args.pod.spec.priority or 0)
    proposals = args.victims()
    patience = max(_LEAST_PATIENCE, _PATIENCE // max(1, len(proposals)))
    ahead = nominations.ahead(PodRef.of(args.pod), among=proposals, default=policy)
    chosen: dict[str, MetaVictims] = {}
    changed = 0
    async for node, proposal in in_slices(proposals.items()):
        proposed = proposal.uids()
        uids = choose_victims(
            ledger.view(node),
            preemptor=preemptor,
            proposed=proposed,
            patience=patience,
            ahead=ahead.get(node, ()),
        )
        if uids is None:
            continue
        changed += set(uids) != set(proposed)
        chosen[node] = MetaVictims(
            pods=[MetaPod(uid=uid) for uid in uids],
            num_pdb_violations=min(proposal.num_pdb_violations, len(uids)),
        )
    log.info(
        "preempt pod=%s priority=%d proposed=%d kept=%d changed=%d dropped=%d",
        args.pod.key,
        preemptor.priority,
        len(proposals),
        len(chosen) - changed,
        changed,
        len(proposals) - len(chosen),
    )
    return PreemptionResult(node_name_to_meta_victims=chosen)


_NO_CARD = Demand(cards=(), containers=())
