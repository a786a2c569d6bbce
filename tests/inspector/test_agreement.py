"""Extender and lists give the same answer, whatever the cluster looks like."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.state import ClusterState
from gpushare.inspection import Inspection, inspect
from gpushare.ledger import Ledger
from gpushare.objects import Node, Pod
from inspector.lists import compute
from inspector.merging import merged
from kubeapi.client import KubeApi, Response
from tests import build
from tests.build import NAMES

MEMORY: st.SearchStrategy[int | str | None] = st.sampled_from(
    [None, 0, 1, 7, 500, 4000, 8192, "1k", "1.5", "-1", "10Gi"]
)


class Lists(KubeApi):
    """An API server that knows these objects: lists in pages of two, field selectors."""

    def __init__(self, nodes: list[Node], pods: list[Pod]) -> None:
        self._objects: dict[str, list[Any]] = {"/api/v1/nodes": list(nodes), "/api/v1/pods": list(pods)}

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, **_: Any
    ) -> Response:
        asked = dict(query or {})
        selector = asked.get("fieldSelector", "")
        chosen = [each for each in self._objects[path] if _matches(each, selector)]
        start = int(asked.get("continue", 0))
        rest = {"continue": str(start + 2)} if start + 2 < len(chosen) else {}
        page = {
            "metadata": {"resourceVersion": "1"} | rest,
            "items": [build.wire(each) for each in chosen[start : start + 2]],
        }
        return Response(status=200, body=msgspec.json.encode(page))


def _matches(obj: Node | Pod, selector: str) -> bool:
    if isinstance(obj, Node):
        return True
    for term in filter(None, selector.split(",")):
        field, _, value = term.partition("=")
        actual = {"spec.nodeName": obj.node_name, "status.phase": obj.status.phase if obj.status else ""}
        if (actual[field.removesuffix("!")] == value) == field.endswith("!"):
            return False
    return True


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """A node of ours, of the classic plugin, without cards, or one that publishes nonsense."""
    kind = draw(st.sampled_from(["ours", "ours", "classic", "bare", "broken"]))
    sizes = draw(st.lists(st.sampled_from([4000, 8192, 16384]), min_size=1, max_size=3))
    cards = [
        build.card(index, memory=size, node=name, healthy=draw(st.booleans()))
        for index, size in enumerate(sizes)
    ]
    made = build.node(
        name, cards=cards, classic=kind == "classic", address=draw(st.sampled_from(["", "10.0.0.1"]))
    )
    if kind in ("ours", "classic"):
        return made
    text = {"bare": {}, "broken": {NAMES.cards: draw(st.sampled_from(["{", "[]", '{"unit":"MB"}']))}}[kind]
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, annotations=text), status=None
    )


@st.composite
def pods(draw: st.DrawFn, number: int) -> Pod:
    """A pod that waits, that has cards, or that has something wrong with it."""
    on = draw(st.sampled_from(["", "", "n0", "n1", "n2", "gone"]))
    memory = draw(MEMORY)
    slots = draw(st.sampled_from([None, 1, 2]))
    annotations = draw(
        st.dictionaries(
            st.sampled_from([NAMES.assigned, NAMES.assume_time, NAMES.policy, NAMES.index, NAMES.allocation]),
            st.sampled_from(["true", "1767225600000000000", "spread", "abc", "0", "7", "{"]),
            max_size=2,
        )
    )
    is_whole = isinstance(memory, int) and memory and memory % (slots or 1) == 0
    cards = list(range(slots or 1)) if on and is_whole and draw(st.booleans()) else None
    return build.pod(
        f"p{number}",
        memory=memory,
        slots=slots,
        on=on,
        cards=cards,
        annotations=annotations,
        phase=draw(st.sampled_from(["Pending", "Running", "Running", "Succeeded"])),
        created=f"2026-01-01T00:00:{number:02}Z",
        deleting=draw(st.booleans()),
    )


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod]]:
    """A few nodes, at least one of which publishes the cluster's unit, and pods on and off them."""
    first = build.node("n0", cards=[16384, 8192])
    others = [draw(nodes(f"n{number}")) for number in range(1, draw(st.integers(1, 3)))]
    return [first, *others], [draw(pods(number)) for number in range(draw(st.integers(0, 8)))]


def told(found: tuple[list[Node], list[Pod]], *, only: list[str]) -> Inspection:
    """What an extender says that has seen these objects."""
    state = ClusterState(Ledger(names=NAMES, unit="MiB"))
    for node in found[0]:
        state.nodes.put(node)
    for pod in found[1]:
        if pod.status is None or pod.status.phase != "Succeeded":  # its watch leaves these out
            state.pods.put(pod)
    answers = [inspect(state.ledger, waiting=state.waiting.values(), only=name) for name in only or (None,)]
    return merged([answer for answer in answers if answer is not None])


@settings(max_examples=200, deadline=None)
@given(found=clusters(), data=st.data())
def test_lists_give_the_extenders_answer(found: tuple[list[Node], list[Pod]], data: st.DataObject) -> None:
    names = [node.name for node in found[0]]
    only = data.draw(st.lists(st.sampled_from(names), unique=True), label="only")
    computed = asyncio.run(compute(Lists(*found), names=NAMES, only=only))
    assert computed.inspection == told(found, only=only)


def test_the_unit_is_the_one_that_most_nodes_publish() -> None:
    def unit(*units: str) -> tuple[str, ...]:
        made = [build.node(f"n{number}", cards=[15], unit=each) for number, each in enumerate(units)]
        made.append(build.node("classic", cards=[15], classic=True))
        return asyncio.run(compute(Lists(made, []), names=NAMES, only=[])).units

    assert unit("GiB") == ("GiB",)
    assert unit("GiB", "MiB", "GiB") == ("GiB", "MiB")
    assert unit("GiB", "MiB") == ("MiB", "GiB")
    assert unit() == ()
