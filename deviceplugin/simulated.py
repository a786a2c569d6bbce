"""Simulated cards, for demos and tests on machines without a GPU: a YAML file, read again when it changes.

    cards:
      - uuid: GPU-a            # required, different for each card
        memory: 16276          # required, in units
        model: Tesla T4        # optional, as all below
        numa: 0
        minor: 1               # of its node, /dev/nvidia1; without it the card has none
        healthy: false
        reason: taken out for a demo

A card's index is its position. A file that makes no sense is refused with its line at start; later such a
file is only logged and the cards stay as they were.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import watchfiles
import yaml

from deviceplugin.counts import CardCounts
from deviceplugin.devicenodes import gpu_node
from deviceplugin.errors import CardsFileError
from deviceplugin.sharing import Sharing
from gpushare.cards import LARGEST_CARD, Card

log = logging.getLogger(__name__)

_KINDS: dict[str, tuple[type, str]] = {
    "uuid": (str, "a text"),
    "memory": (int, "a whole number of units"),
    "model": (str, "a text"),
    "numa": (int, "a whole number"),
    "minor": (int, "a whole number"),
    "healthy": (bool, "true or false"),
    "reason": (str, "a text"),
}
_REQUIRED = ("uuid", "memory")
_MOST_NUMA_NODES = 1024  # of Linux (CONFIG_NODES_SHIFT 10)
_DEBOUNCE_MS = 50
_CHECK_MS = 1000


def read_cards(path: Path) -> tuple[Card, ...]:
    """Read a file of simulated cards; raises `CardsFileError` with the line of the first thing wrong."""
    cards, _ = _read(path)
    return cards


def _read(path: Path) -> tuple[tuple[Card, ...], dict[str, tuple[str, ...]]]:
    """The cards, and the device nodes of those that name one, by UUID."""
    try:
        # yaml.compose keeps the line of every node, and constructs nothing.
        root = yaml.compose(path.read_text(), Loader=yaml.SafeLoader)
    except (OSError, UnicodeError) as error:
        raise CardsFileError(path, line=1, problem=f"cannot be read: {error}") from error
    except RecursionError as error:
        raise CardsFileError(path, line=1, problem="is nested too deeply") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or error)
        raise CardsFileError(path, line=mark.line + 1 if mark else 1, problem=problem) from error
    reader = _Reader(path)
    if root is None:
        raise reader.fault(None, "is empty; expected a list under 'cards'")
    keys = reader.mapping(root, what="the file", known=("cards",))
    if "cards" not in keys:
        raise reader.fault(root, "has no 'cards'")
    if not isinstance(keys["cards"], yaml.SequenceNode):
        raise reader.fault(keys["cards"], "'cards' is not a list")
    return reader.cards(keys["cards"])


class _Reader:
    """Turns YAML nodes into cards."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._scalars = yaml.SafeLoader("")

    def fault(self, node: yaml.Node | None, problem: str) -> CardsFileError:
        return CardsFileError(self._path, line=node.start_mark.line + 1 if node else 1, problem=problem)

    def mapping(self, node: yaml.Node, *, what: str, known: tuple[str, ...]) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self.fault(node, f"{what} is not a mapping with the keys {', '.join(known)}")
        values: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if name not in known:
                raise self.fault(key, f"unknown key {name!r}; known are {', '.join(known)}")
            if name in values:
                raise self.fault(key, f"{name!r} is given twice")
            values[name] = value
        return values

    def cards(self, nodes: yaml.SequenceNode) -> tuple[tuple[Card, ...], dict[str, tuple[str, ...]]]:
        cards: list[Card] = []
        device_nodes: dict[str, tuple[str, ...]] = {}
        lines: dict[str, int] = {}
        for index, node in enumerate(nodes.value):
            keys = self.mapping(node, what=f"card {index}", known=tuple(_KINDS))
            values = {name: self._scalar(value, name=name) for name, value in keys.items()}
            for name in _REQUIRED:
                if name not in values:
                    raise self.fault(node, f"card {index} has no {name!r}")
            uuid, memory, numa = values["uuid"], values["memory"], values.get("numa", 0)
            if not uuid or "," in str(uuid) or "::" in str(uuid):
                raise self.fault(keys["uuid"], f"uuid {uuid!r} is empty or has a ',' or '::' in it")
            if uuid in lines:
                raise self.fault(
                    keys["uuid"], f"uuid {uuid!r} is that of the card in line {lines[str(uuid)]} too"
                )
            if not isinstance(memory, int) or memory <= 0:
                raise self.fault(keys["memory"], f"memory {memory!r} is not above zero")
            if memory > LARGEST_CARD:
                raise self.fault(keys["memory"], f"memory {memory!r} is more units than any card has")
            if not isinstance(numa, int) or not 0 <= numa < _MOST_NUMA_NODES:
                raise self.fault(keys["numa"], f"numa {numa!r} is not a NUMA node's number")
            minor = values.pop("minor", None)
            if isinstance(minor, int):
                if minor < 0:
                    raise self.fault(keys["minor"], f"minor {minor!r} is negative")
                device_nodes[str(uuid)] = (gpu_node(minor),)
            lines[str(uuid)] = keys["uuid"].start_mark.line + 1
            cards.append(Card(index=index, **values))  # type: ignore[arg-type]
        return tuple(cards), device_nodes

    def _scalar(self, node: yaml.Node, *, name: str) -> object:
        kind, expected = _KINDS[name]
        try:
            value = self._scalars.construct_object(node) if isinstance(node, yaml.ScalarNode) else node.value
        except (ValueError, yaml.YAMLError) as error:
            raise self.fault(
                node, f"{name} is {node.value!r} with the tag {node.tag}, not {expected}"
            ) from error
        if type(value) is not kind:  # a bool is an int to Python, and no number of units
            raise self.fault(node, f"{name} is {value!r}, not {expected}")
        return value


class SimulatedCards:
    """A `CardSource` over one file."""

    def __init__(self, path: Path, *, sharing: Sharing | None = None) -> None:
        """Reads the file once; raises `CardsFileError`."""
        self.problem: str | None = None
        self.counts = CardCounts()
        self._path = path
        self._sharing = sharing or Sharing()
        self._cards, self._device_nodes = _read(path)

    def device_nodes(self, uuid: str) -> tuple[str, ...]:
        """The node of the card's `minor`, if the file gives one."""
        return self._device_nodes.get(uuid, ())

    async def follow(self) -> AsyncIterator[tuple[Card, ...]]:
        """Yield the cards, and again after every change of the file that makes sense."""
        self._sharing.tell_of_unknown({name for card in self._cards for name in (card.uuid, str(card.index))})
        yield self._sharing.apply(self._cards)
        async for _ in watchfiles.awatch(
            self._path.resolve().parent,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_CHECK_MS,
            yield_on_timeout=True,
            recursive=False,
        ):
            try:
                cards, self._device_nodes = await asyncio.to_thread(_read, self._path)
            except CardsFileError as error:
                if str(error) != self.problem:
                    log.warning("cards ignored reason=%r", str(error))
                self.problem = str(error)
                continue
            self.problem = None
            if cards != self._cards:
                self._cards = cards
                yield self._sharing.apply(cards)
