"""Clusters to look at, without a cluster: an extender that nobody started, told of nodes and pods.

Everything is the same in every run, so that screenshots change only when the page does.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator

from extender.app import create_app
from extender.core import Extender
from extender.leaderlabel import LeaderLabel
from extender.listeners import http_server
from extender.ui.page import ui_routes
from gpushare.allocation import allocation_annotations
from gpushare.cards import Card, NodeCards, encode_cards
from gpushare.objects import Node, NodeStatus, ObjectMeta, Pod, PodSpec, PodStatus
from gpushare.placement import Policy
from kubeapi.leases import Elector
from kubeapi.listen import open_socket
from sandbox.apiserver import ApiServer
from tests.build import NAMES, container, demand
from tests.inprocess import LocalApi

MODELS = {"NVIDIA H100 80GB HBM3": 81_079, "NVIDIA A100-SXM4-40GB": 40_326, "Tesla V100-PCIE-16GB": 16_276}
NAMESPACES = ("research", "search", "speech", "vision", "ads", "notebooks", "ci")
APPS = ("embedder", "reranker", "asr-stream", "detector", "notebook", "ranker-shadow", "trainer-eval", "tts")
BORN = 1_780_000_000
"""Seconds since 1970: when the first pod was given its card."""


def quiet_extender(elector: Elector | None = None, *, label: LeaderLabel | None = None) -> Extender:
    """Ready, and told of nothing by nobody."""
    api = LocalApi(ApiServer().app, user_agent="nobody")
    extender = Extender(api, names=NAMES, unit="MiB", policy=Policy.BINPACK, elector=elector, label=label)
    for reflector in extender.reflectors:
        reflector.synced.set()
    return extender


def alike(name: str, count: int, *, memory: int = 16_276) -> list[Card]:
    """Cards of one size for the node `name`."""
    return [Card(index=at, uuid=f"GPU-{name}-{at}", memory=memory, model="Tesla V100") for at in range(count)]


def node(name: str, cards: list[Card]) -> Node:
    """A node that publishes these cards."""
    text = encode_cards(NodeCards(unit="MiB", slots=32, cards=tuple(cards)))
    return Node(
        metadata=ObjectMeta(name=name, annotations={NAMES.cards: text}), status=NodeStatus(capacity={})
    )


def pod(name: str, *, namespace: str, memory: int, on: str, card: Card, number: int) -> Pod:
    """A running pod of one container on one card."""
    spec = PodSpec(node_name=on, containers=(container("main", memory=memory, slots=1),))
    written = allocation_annotations(
        node=on,
        cards=[card],
        demand=demand(Pod(spec=spec)),
        now_ns=(BORN + number) * 10**9,
        names=NAMES,
    )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{number}",
            annotations=dict(written) | {NAMES.assigned: "true"},
        ),
        spec=spec,
        status=PodStatus(phase="Running"),
    )


def small() -> Extender:
    """Three nodes with two cards each, four pods."""
    extender = quiet_extender()
    for name, model in (("alpha", "Tesla T4"), ("beta", "NVIDIA A10"), ("gamma", "NVIDIA A10")):
        cards = [Card(index=at, uuid=f"GPU-{name}-{at}", memory=8192, model=model) for at in range(2)]
        extender.ledger.set_node(node(name, cards))
    for number, (name, namespace, on, at, memory) in enumerate(
        [
            ("trainer", "research", "alpha", 0, 4096),
            ("notebook-1", "people", "alpha", 0, 2048),
            ("notebook-2", "people", "beta", 1, 2048),
            ("ranker", "search", "gamma", 0, 8192),
        ]
    ):
        card = Card(index=at, uuid=f"GPU-{on}-{at}", memory=8192)
        extender.ledger.set_pod(
            pod(name, namespace=namespace, memory=memory, on=on, card=card, number=number)
        )
    return extender


def large_fleet(nodes: int, *, cards: int = 8) -> Iterator[Node | Pod]:
    """Nodes of three kinds, about three pods a card, a few things wrong."""
    chance = random.Random(20260101)
    number = 0
    for at in range(nodes):
        name = f"gpu-{at:04d}"
        model, memory = list(MODELS.items())[at % 3]
        has = [
            Card(
                index=index,
                uuid=f"GPU-{at:08x}-{index:04x}",
                memory=memory,
                model=model,
                healthy=(at * cards + index) % 397 != 50,
                reason="" if (at * cards + index) % 397 != 50 else "Xid 79: fallen off the bus",
            )
            for index in range(cards)
        ]
        yield node(name, has)
        for card in has if at % 41 != 7 else []:
            left = memory
            for _ in range(chance.choice((1, 2, 3, 3, 4, 5))):
                asked = int(memory * chance.choice((0.1, 0.15, 0.2, 0.25, 0.4)))
                if asked > left:
                    break
                left -= asked
                number += 1
                app, namespace = chance.choice(APPS), chance.choice(NAMESPACES)
                ending = "".join(chance.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
                yield pod(
                    f"{app}-{ending}", namespace=namespace, memory=asked, on=name, card=card, number=number
                )


def tell(extender: Extender, objects: Iterator[Node | Pod]) -> None:
    """As the watches would."""
    for each in objects:
        if isinstance(each, Node):
            extender.ledger.set_node(each)
        else:
            extender.ledger.set_pod(each)


@contextlib.asynccontextmanager
async def page_of(extender: Extender) -> AsyncIterator[str]:
    """Serve the page of an extender; answers its address."""
    listener = open_socket("127.0.0.1:0")
    server = http_server(create_app(extender, ui_routes))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/ui/"
    finally:
        server.stop()
        await serving
