"""Leader election: at most one leads, at every instant, whatever the network does; and somebody leads again.

Time is virtual. The candidates talk to a lease of their own making, which can hold requests and answers up
and lose them; `test_leases_wire` has the same against an API server.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeapi.client import KubeApi, Response
from kubeapi.errors import ApiUnreachable
from kubeapi.leases import JITTER, Elector, LeaseTiming
from tests.virtual import VirtualLoop


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one request."""

    before: float = 0.01
    """Seconds until it is carried out."""
    after: float = 0.01
    """Seconds from there until its answer is here."""
    frozen: bool = False
    """The client does not notice that its time is up: it is stopped meanwhile."""
    lost: bool = False
    """No answer."""


GOOD = Hop()


class LeaseServer:
    """One Lease, with optimistic concurrency."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.writes = 0

    def carry_out(self, method: str, body: Any) -> tuple[int, object]:
        if method == "POST":
            if self.lease is not None:
                return 409, {"reason": "AlreadyExists"}
            return 201, self._store(body)
        if self.lease is None:
            return 404, {"reason": "NotFound"}
        if method == "GET":
            return 200, self.lease
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return 409, {"reason": "Conflict"}
        return 200, self._store(body)

    def _store(self, body: Any) -> object:
        self.version += 1
        self.writes += 1
        self.lease = body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}
        return self.lease


class Line(KubeApi):
    """One candidate's line to the server."""

    def __init__(self, server: LeaseServer, *, weather: list[Hop] | None = None) -> None:
        self.server = server
        self.weather = weather or []
        self.cut = False
        self._under_way: set[asyncio.Task[Response]] = set()

    @property
    def host(self) -> str:
        return "http://lease"

    async def request(self, method: str, path: str, **options: Any) -> Response:
        hop = self.weather.pop(0) if self.weather else GOOD
        if self.cut:
            hop = Hop(before=3600, lost=True)
        exchange = asyncio.create_task(self._exchange(method, options.get("body"), hop))
        self._under_way.add(exchange)
        exchange.add_done_callback(self._under_way.discard)
        try:
            # The server goes on with a request whose client has given up.
            async with asyncio.timeout(None if hop.frozen else options["timeout"]):
                return await asyncio.shield(exchange)
        except TimeoutError as error:
            raise ApiUnreachable("no answer in time") from error

    async def _exchange(self, method: str, body: object, hop: Hop) -> Response:
        body = msgspec.json.decode(msgspec.json.encode(body))
        await asyncio.sleep(hop.before)
        status, answer = self.server.carry_out(method, body)
        content = msgspec.json.encode(answer)
        await asyncio.sleep(hop.after)
        if hop.lost:
            await asyncio.sleep(3600)
        return Response(status=status, body=content)

    async def close(self) -> None:
        for exchange in self._under_way:
            exchange.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)


class Candidates:
    """Replicas that fight for one lease; checks at every change that one at most leads."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.server = LeaseServer()
        self.electors: list[Elector] = []
        self.lines: list[Line] = []
        self.terms: list[str] = []
        self._runs: dict[int, asyncio.Task[None]] = {}

    def join(self, *, weather: list[Hop] | None = None, offset: float = 0.0) -> Elector:
        number = len(self.electors)
        line = Line(self.server, weather=weather)
        elector = Elector(
            line,
            name="gpushare",
            namespace="kube-system",
            identity=f"replica-{number}",
            clock=lambda: self.loop.time() + offset,
        )
        self.lines.append(line)
        self.electors.append(elector)
        self._runs[number] = self.loop.create_task(elector.run(elected=lambda: self._elected(number)))
        return elector

    def _elected(self, number: int) -> None:
        self.terms.append(self.electors[number].identity)
        self.check()

    def check(self) -> None:
        leaders = self.leaders()
        assert len(leaders) <= 1, f"{leaders} lead at {self.loop.time()}"

    def leaders(self) -> list[str]:
        return [elector.identity for elector in self.electors if elector.term is not None]

    async def watch(self, seconds: float) -> None:
        """Let time pass in small steps, looking all the while."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await asyncio.sleep(0.05)
            self.check()
            for run in self._runs.values():
                if run.done() and not run.cancelled():
                    run.result()

    async def crash(self, number: int) -> None:
        run = self._runs.pop(number, None)
        if run is not None:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)

    async def stop(self, number: int) -> None:
        await self.crash(number)
        await self.electors[number].release()
        self.check()

    async def end(self) -> None:
        for number in list(self._runs):
            await self.crash(number)
        for line in self.lines:
            await line.close()


def play(story: Any) -> None:
    """Run a story, a coroutine function over candidates, in virtual time."""
    loop = VirtualLoop()
    random.seed(7)  # the standbys' jitter: a failure must come again

    async def told() -> None:
        candidates = Candidates(loop)
        try:
            await story(candidates)
        finally:
            await candidates.end()

    try:
        loop.run(told())
    finally:
        loop.close()


def virtual(story: Any) -> Any:
    """A test in virtual time."""

    def test() -> None:
        play(story)

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


LATEST_TAKEOVER = 15 + 2 * (1 + JITTER) + 1


@virtual
async def test_the_first_one_leads_and_the_others_know_who(candidates: Candidates) -> None:
    first, second = candidates.join(), candidates.join()
    await candidates.watch(60)
    (leader,) = candidates.leaders()
    standby = second if leader == first.identity else first
    assert standby.problem == f"not the leader: {leader} holds lease kube-system/gpushare"
    assert candidates.terms == [leader]
    assert candidates.server.lease is not None
    spec = candidates.server.lease["spec"]
    assert spec["holderIdentity"] == leader
    assert spec["leaseDurationSeconds"] == 15
    assert spec["leaseTransitions"] == 0
    assert spec["acquireTime"] <= spec["renewTime"]


@virtual
async def test_a_crashed_leader_is_followed_within_duration_and_retry(candidates: Candidates) -> None:
    candidates.join()
    await candidates.watch(5)
    candidates.join()
    await candidates.watch(5)
    await candidates.crash(0)
    await candidates.watch(9)
    assert candidates.leaders() in (["replica-0"], [])
    await candidates.watch(LATEST_TAKEOVER - 9)
    assert candidates.leaders() == ["replica-1"]
    assert candidates.server.lease is not None
    assert candidates.server.lease["spec"]["leaseTransitions"] == 1


@virtual
async def test_a_released_lease_is_taken_at_the_next_attempt(candidates: Candidates) -> None:
    candidates.join()
    await candidates.watch(1)
    candidates.join()
    await candidates.watch(5)
    await candidates.stop(0)
    assert candidates.leaders() == []
    assert candidates.electors[0].problem == "not the leader: nobody holds lease kube-system/gpushare"
    await candidates.watch(2 * (1 + JITTER) + 0.2)
    assert candidates.leaders() == ["replica-1"]


@virtual
async def test_a_standby_that_stops_releases_nothing(candidates: Candidates) -> None:
    candidates.join()
    await candidates.watch(1)
    candidates.join()
    await candidates.watch(3)
    await candidates.stop(1)
    assert candidates.leaders() == ["replica-0"]
    assert candidates.server.lease is not None
    assert candidates.server.lease["spec"]["holderIdentity"] == "replica-0"


@virtual
async def test_a_leader_that_cannot_renew_stops_before_another_can_begin(candidates: Candidates) -> None:
    leader = candidates.join()
    await candidates.watch(5)
    standby = candidates.join()
    await candidates.watch(5)
    candidates.lines[0].cut = True
    cut = candidates.loop.time()
    while leader.term is not None:
        await candidates.watch(0.1)
    stopped = candidates.loop.time()
    assert 7 < stopped - cut <= 10.2
    assert leader.problem == "not the leader: lease kube-system/gpushare could not be renewed"
    while standby.term is None:
        await candidates.watch(0.1)
    assert candidates.loop.time() - stopped > 3.9  # what a bind in flight may take
    candidates.lines[0].cut = False
    await candidates.watch(30)
    assert candidates.leaders() == ["replica-1"]
    assert leader.problem == "not the leader: replica-1 holds lease kube-system/gpushare"


@virtual
async def test_a_short_outage_is_a_new_term_of_the_same_leader(candidates: Candidates) -> None:
    leader = candidates.join()
    await candidates.watch(5)
    first = leader.term
    candidates.lines[0].cut = True
    await candidates.watch(11)
    assert leader.term is None
    candidates.lines[0].cut = False
    await candidates.watch(8)
    assert leader.term is not None
    assert leader.term != first
    assert candidates.terms == ["replica-0"] * 2


@virtual
async def test_the_times_in_the_lease_do_not_count(candidates: Candidates) -> None:
    """A clock that is wrong by years neither keeps a lease nor loses it: what counts is when it was seen."""
    for renewed in ("1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"):
        spec = {"holderIdentity": "another", "leaseDurationSeconds": 15, "renewTime": renewed}
        candidates.server.lease = {"metadata": {"resourceVersion": "9"}, "spec": spec}
        elector = candidates.join()
        await candidates.watch(14.5)
        assert elector.term is None
        assert elector.problem == "not the leader: another holds lease kube-system/gpushare"
        await candidates.watch(LATEST_TAKEOVER - 14.5)
        assert elector.term is not None
        await candidates.crash(len(candidates.electors) - 1)
        await candidates.watch(11)


@virtual
async def test_the_holders_own_duration_counts(candidates: Candidates) -> None:
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 60, "renewTime": "2026-01-01T00:00:00.0Z"}
    candidates.server.lease = {"metadata": {"resourceVersion": "9"}, "spec": spec}
    elector = candidates.join()
    await candidates.watch(59.9)
    assert elector.term is None
    await candidates.watch(6)
    assert elector.term is not None


@virtual
async def test_a_deleted_lease_does_not_make_a_second_leader(candidates: Candidates) -> None:
    candidates.join()
    await candidates.watch(1)
    candidates.join()
    await candidates.watch(10)
    candidates.server.lease = None
    await candidates.watch(30)
    assert candidates.terms == ["replica-0"]


@virtual
async def test_a_lease_taken_by_hand_ends_the_term_at_the_next_look(candidates: Candidates) -> None:
    elector = candidates.join()
    await candidates.watch(5)
    lease = candidates.server.lease
    assert lease is not None
    candidates.server.carry_out("PUT", lease | {"spec": lease["spec"] | {"holderIdentity": "a person"}})
    await candidates.watch(2.2)
    assert elector.term is None
    assert elector.problem == "not the leader: a person holds lease kube-system/gpushare"


@virtual
async def test_what_others_wrote_into_the_lease_stays(candidates: Candidates) -> None:
    metadata = {"resourceVersion": "9", "labels": {"team": "gpu"}}
    candidates.server.lease = {"metadata": metadata, "spec": {"strategy": "OldestEmulationVersion"}}
    candidates.join()
    await candidates.watch(5)
    assert candidates.server.lease["metadata"]["labels"] == {"team": "gpu"}
    assert candidates.server.lease["spec"]["strategy"] == "OldestEmulationVersion"


@virtual
async def test_an_answer_after_the_deadline_is_no_renewal(candidates: Candidates) -> None:
    """The process was stopped while its renewal was under way, and goes on when another leads."""
    frozen = [GOOD, GOOD, GOOD, Hop(after=40, frozen=True)]
    candidates.join(weather=frozen)
    await candidates.watch(1)
    candidates.join()
    await candidates.watch(60)
    assert candidates.terms == ["replica-0", "replica-1"]
    assert candidates.leaders() == ["replica-1"]


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"spec": {"holderIdentity": 7}}', b'{"spec": 3}'])
def test_an_unreadable_lease_is_waited_out(body: bytes) -> None:
    async def story(candidates: Candidates) -> None:
        elector = candidates.join()
        line = candidates.lines[0]
        request, line.request = line.request, unreadable  # type: ignore[method-assign]
        await candidates.watch(10)
        assert elector.term is None
        line.request = request  # type: ignore[method-assign]
        await candidates.watch(5)
        assert elector.term is not None

    def unreadable(method: str, path: str, **options: Any) -> Coroutine[Any, Any, Response]:
        return asyncio.sleep(0.01, Response(status=200, body=body))

    play(story)


SECONDS = st.sampled_from([0.01, 0.01, 0.5, 3.0, 4.9, 6.0, 9.9, 12.0, 16.0, 40.0])
HOPS = st.builds(
    Hop,
    before=SECONDS,
    after=SECONDS,
    frozen=st.booleans(),
    lost=st.sampled_from([False, False, False, True]),
)
ACTS = st.tuples(
    st.sampled_from(["join", "join", "crash", "stop", "cut", "mend"]),
    st.integers(0, 9),
    st.sampled_from([0.0, 1.0, 2.0, 5.0, 9.0, 14.0, 30.0]),
)


@settings(max_examples=60, deadline=None)
@given(
    weathers=st.lists(st.lists(HOPS, max_size=12), min_size=10, max_size=10),
    offsets=st.lists(st.sampled_from([0.0, -1e6, 1e6, 0.5, -12.0]), min_size=10, max_size=10),
    acts=st.lists(ACTS, max_size=14),
)
def test_V7_never_two_leaders_and_in_good_weather_one(
    weathers: list[list[Hop]], offsets: list[float], acts: list[tuple[str, int, float]]
) -> None:
    async def story(candidates: Candidates) -> None:
        def join() -> None:
            number = len(candidates.electors)
            if number < 10:
                candidates.join(weather=list(weathers[number]), offset=offsets[number])

        join()
        join()
        for act, number, pause in acts:
            await candidates.watch(pause)
            chosen = number % len(candidates.electors)
            match act:
                case "join":
                    join()
                case "crash":
                    await candidates.crash(chosen)
                case "stop":
                    await candidates.stop(chosen)
                case "cut" | "mend":
                    candidates.lines[chosen].cut = act == "cut"
        for line in candidates.lines:
            line.weather.clear()
            line.cut = False
        candidates.join()
        await candidates.watch(80)
        assert len(candidates.leaders()) == 1

    play(story)


def test_a_timing_that_cannot_be_safe_is_refused() -> None:
    for wrong in (
        {"duration": 10.0},
        {"renew_deadline": 15.0},
        {"retry": 9.0},
        {"retry": 0.0},
    ):
        with pytest.raises(ValueError, match="does not hold"):
            LeaseTiming(**wrong)
