"""Pods that fill every card to its last unit, so that a card given twice shows as a pod without room."""

from __future__ import annotations

import threading
import time

from tests.e2e.api import Api
from tests.e2e.workload import placement, pod

NODES = 10
CARDS = [16000] * 4
SHARE = 4000
PODS = NODES * len(CARDS) * 4
A_SECOND = 25


class Load:
    """Pods that come in at a steady rate, from a thread of its own."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._thread = threading.Thread(target=self._run)
        self.created = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        begin = time.monotonic()
        for number in range(PODS):
            time.sleep(max(0.0, begin + number / A_SECOND - time.monotonic()))  # the rate, not a wait
            self._api.create(pod(f"p{number}", SHARE))
            self.created += 1


def bound(api: Api) -> int:
    return sum(placement(item) != ("", "") for item in api.pods())
