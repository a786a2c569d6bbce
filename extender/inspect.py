"""`inspect` over HTTP: the answer of `gpushare.inspection`, written node by node.

At 5,000 nodes it has some 25 MB and takes a second to make, which no verb must wait for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

import msgspec

from extender.core import Extender
from extender.slices import in_slices
from gpushare.inspection import WaitingSurvey

_CHUNK = 100_000  # bytes sent at a time


async def inspection_chunks(
    extender: Extender, *, nodes: Iterable[str], by_name: bool
) -> AsyncGenerator[bytes]:
    """The JSON of an `Inspection` of these nodes, bit by bit. Those that share no cards are left out, unless
    they were asked for by name."""
    ledger = extender.ledger
    survey = WaitingSurvey(extender.waiting.values(), names=ledger.names)
    head = msgspec.json.encode({"resource": ledger.names.memory, "unit": ledger.unit})
    written = bytearray(head[:-1] + b',"nodes":[')
    comma = b""
    async for name in in_slices(nodes):
        view = ledger.view(name)
        if by_name or view.is_shared:
            written += comma + extender.texts.of(view)
            survey.ask(view)
            comma = b","
            if len(written) > _CHUNK:
                yield bytes(written)
                written.clear()
    written += b'],"waiting":['
    comma = b""
    async for pod in in_slices(survey.answers()):
        written += comma + pod.__pydantic_serializer__.to_json(pod, by_alias=True)
        comma = b","
    yield bytes(written + b"]}")
