"""Does the live ledger still say what the pods say? Asked of the API server every few minutes.

The ledger is kept by events, and a mistake in that would last for ever. So it is compared with a fresh,
consistent list. List and ledger are of different moments, and what changed in between is no mistake: a pod
counts as a difference only where nothing at all was said about it from before the list was asked for until
the watch had come as far as the list. Then the list is right, and the ledger takes it over.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable

import msgspec

from extender.slices import in_slices
from extender.verification import LIVE_PODS
from gpushare.bookings import Booking, Claim, claim_of
from gpushare.ledger import Ledger
from gpushare.objects import UNDECODABLE, Pod
from kubeapi.client import KubeApi
from kubeapi.errors import ApiError
from kubeapi.listing import Lister

log = logging.getLogger(__name__)

EVERY = 300.0
"""Seconds from one audit to the next."""

OUTCOMES = ("clean", "corrected", "unfinished", "failed")
"""`unfinished`: the watch stayed behind."""

CATCH_UP = 180.0
"""Seconds to wait for the watch to come as far as the list: in a quiet cluster only the bookmarks show it,
which come about once a minute (1.36)."""

BOUND_PODS = f"spec.nodeName!=,{LIVE_PODS}"
"""Field selector of the pods that can hold something. An unbound one holds nothing, listed or not."""

_PAGE = 250
_LOOK = 0.5  # seconds between two looks at how far the watch has come


class Audit:
    """Compares and corrects one ledger. Lives on the ledger's event loop."""

    def __init__(
        self,
        api: KubeApi,
        *,
        ledger: Ledger,
        view_version: Callable[[], int | None],
        is_binding: Callable[[str], bool],
        is_active: Callable[[], bool],
        every: float = EVERY,
        catch_up: float = CATCH_UP,
    ) -> None:
        """`view_version` is how far the pods' watch has come, `None` while it is being listed anew;
        `is_binding` whether the binder still answers for what a pod (by UID) has reserved."""
        self._lister = Lister(
            api, "/api/v1/pods", kind=msgspec.Raw, selectors={"fieldSelector": BOUND_PODS}, page=_PAGE
        )
        self._ledger = ledger
        self._view_version = view_version
        self._is_binding = is_binding
        self._is_active = is_active
        self._every = every
        self.catch_up = catch_up
        """Seconds to wait for the watch."""
        self.outcomes: Counter[str] = Counter()
        """How many audits ended with each of `OUTCOMES`."""
        self.corrections = 0
        """How many pods the ledger had wrong, over all audits."""

    async def run(self) -> None:
        """Audit again and again until cancelled, on the active replica only."""
        while True:
            await asyncio.sleep(self._every * random.uniform(0.9, 1.1))
            if self._is_active():
                await self.once()

    async def once(self) -> str:
        """Audit now and return the outcome, one of `OUTCOMES`."""
        try:
            outcome = await self._audit()
        except ApiError as error:
            log.warning("audit failed reason=%r", str(error))
            outcome = "failed"
        self.outcomes[outcome] += 1
        return outcome

    async def _audit(self) -> str:
        with self._ledger.noting() as touched:
            suspects, version = await self._suspects()
            if not suspects:
                return "clean"
            if not await self._caught_up(version):
                log.info("audit unfinished suspects=%d reason='the watch has not caught up'", len(suspects))
                return "unfinished"
            wrong = [uid for uid in suspects if uid not in touched and not self._is_binding(uid)]
            corrected = sum(self._correct(uid, suspects[uid]) for uid in wrong)
        self.corrections += corrected
        return "corrected" if corrected else "clean"

    async def _suspects(self) -> tuple[dict[str, Pod | None], int]:
        """By UID the pods that list and ledger differ about, as listed, and the list's version."""
        suspects: dict[str, Pod | None] = {}
        holding: set[str] = set()
        version = ""
        async for page in self._lister.pages():
            version = page.version
            async for raw in in_slices(page.items or ()):
                pod = _decode(raw)
                claim = claim_of(pod, self._ledger.names)
                if claim is not None:
                    holding.add(pod.metadata.uid)
                if not _agree(claim, self._ledger.claim(pod.metadata.uid)):
                    suspects[pod.metadata.uid] = pod
        async for uid in in_slices(self._ledger.uids()):
            if uid not in holding and uid not in suspects:
                suspects[uid] = None
        if not version.isdigit():
            raise ApiError(f"the version of a list is no number: {version!r}")
        return suspects, int(version)

    async def _caught_up(self, version: int) -> bool:
        """Wait until the watch has come as far as `version`; say whether it did."""
        try:
            async with asyncio.timeout(self.catch_up):
                while (self._view_version() or 0) < version:  # noqa: ASYNC110 — nobody tells of bookmarks
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            return False
        return True

    def _correct(self, uid: str, pod: Pod | None) -> bool:
        """Take over what the list says of a pod; say whether that was something else."""
        listed = None if pod is None else claim_of(pod, self._ledger.names)
        found = self._ledger.claim(uid)
        if _agree(listed, found):
            return False
        log.error("ledger corrected uid=%s had=%s has=%s", uid, _told(found), _told(listed))
        if pod is None or listed is None:
            self._ledger.remove_pod(uid)
        else:
            self._ledger.set_pod(pod)
        return True


def _agree(one: Claim | None, other: Claim | None) -> bool:
    """Whether two claims of one pod charge the same cards with the same amounts."""
    return _charged(one) == _charged(other)


def _charged(claim: Claim | None) -> object:
    if isinstance(claim, Booking):
        return claim.node, claim.demand.cards, claim.allocation.cards
    return None if claim is None else (claim.node, "unreadable")


def _told(claim: Claim | None) -> str:
    if claim is None:
        return "nothing"
    if isinstance(claim, Booking):
        units = "+".join(str(share.memory) for share in claim.demand.cards)
        return f"{claim.pod}:{units}@{claim.node}/{claim.allocation.indices}"
    return f"{claim.pod}:unreadable@{claim.node}"


def _decode(raw: msgspec.Raw) -> Pod:
    try:
        return _pod.decode(raw)
    except UNDECODABLE as error:
        raise ApiError(f"a listed pod cannot be read: {error}") from error


_pod = msgspec.json.Decoder(Pod)
