"""An extender with all its routes on a virtual loop, for bodies of every kind."""

from __future__ import annotations

import types
from typing import Self

import msgspec

from extender.app import create_app
from kubeapi.client import Response
from tests.build import card
from tests.extender.truth import Published
from tests.extender.world import World
from tests.inprocess import post

HAVE_ERROR = {"/gpushare-scheduler/filter", "/gpushare-scheduler/bind"}
"""Their answers have a place for a refusal; kube-scheduler throws the body of anything but a 200 away."""


class Target:
    """Use it as a context manager. `throw` checks what holds for every answer."""

    def __init__(self) -> None:
        self.world = World(replicas=1)
        self.thrown = 0

    def __enter__(self) -> Self:
        self.world.__enter__()
        for name in ("n1", "n2"):
            cards = (card(0, memory=10, node=name), card(1, memory=17, node=name))
            self.world.publish(name, Published(cards=cards))
        self.world.create("small", number=0)
        self.world.start(self.world.replicas[0])
        self.world.loop.advance(1)
        self._app = create_app(self.world.replicas[0].extender)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.world.__exit__()

    def throw(self, path: str, body: bytes) -> Response:
        """POST a body: the answer is JSON and no internal error, and nonsense books nothing."""
        self.thrown += 1
        answer = self.world.loop.run(post(self._app, path, body))
        assert answer.status < 500, answer
        found = msgspec.json.decode(answer.body)
        if path in HAVE_ERROR:
            assert answer.status == 200, answer
            assert isinstance(found, dict)
        elif answer.status != 200:
            assert answer.status == 400, answer
            assert isinstance(found["error"], str)
        self.world.check()
        return answer

    @property
    def is_well(self) -> bool:
        """Whether it still answers."""
        pod = self.world.pods()[0]
        return self.world.ask(self.world.replicas[0], pod) != []
