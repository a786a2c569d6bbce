"""Bodies that nobody should send: almost right, of wrong types, cut, nested, huge, and plain noise."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests import build
from tests.build import NAMES

NODES = ["n1", "n2", "unknown", "", "n1\u0000", "ü" * 300]
UIDS = ["uid-a", "", "00000000-0000-0000-0000-000000000001"]

_texts = st.sampled_from([*NODES, *UIDS, "\ud800", "a/b", "../x", "{}"]) | st.text(max_size=12)
_numbers = st.sampled_from([0, -1, 1, 2**31, 2**63, 2**64, 10**400, 1e308, -0.0, 0.5]) | st.integers(-9, 9)
_scalars = st.none() | st.booleans() | _numbers | _texts
_anything = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)


def _object(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object that may lack any of its fields, have others, and have something else in their places."""
    wild = {name: field | _anything if name == "limits" else field for name, field in fields.items()}
    right = st.fixed_dictionaries({}, optional=wild)
    return right | st.builds(lambda a, b: a | b, right, st.dictionaries(_keys, _anything, max_size=2))


_keys = st.sampled_from(
    ["metadata", "spec", "containers", "limits", "Pod", "pod", "NodeNames", "PodUID", "uid"]
) | st.text(max_size=6)
_quantities = (
    st.sampled_from(["1k", "1Ki", "1e3", "2000m", "500m", "-1", "", " 1", "3", "9e99", "1e999999", "٣"])
    | _scalars
)
_limits = st.dictionaries(st.sampled_from([NAMES.memory, NAMES.slot, "cpu"]), _quantities, max_size=3)
_container = _object(
    name=_texts,
    resources=st.none() | _object(limits=_limits),
    restartPolicy=st.sampled_from(["Always", None]),
)
_containers = st.none() | st.lists(_container, max_size=3) | _anything
_annotations = st.dictionaries(
    st.sampled_from([NAMES.policy, NAMES.index, NAMES.allocation, NAMES.cards]), _texts, max_size=2
)
_metadata = _object(
    name=_texts, namespace=_texts, uid=st.sampled_from(UIDS), annotations=st.none() | _annotations
)
_pod = (
    _object(
        metadata=_metadata,
        spec=_object(
            containers=_containers, initContainers=_containers, nodeName=_texts | st.none(), priority=_numbers
        ),
    )
    | st.sampled_from([build.wire(build.pod("a", memory=memory, slots=1)) for memory in (0, 3, 99, "1k")])
    | _anything
)
_node = _object(metadata=_object(name=st.sampled_from(NODES))) | _anything
_names = st.none() | st.lists(st.sampled_from(NODES), max_size=4) | _anything
_victims = st.dictionaries(
    st.sampled_from(NODES),
    _object(
        Pods=st.none() | st.lists(_pod | _object(UID=st.sampled_from(UIDS)), max_size=3),
        NumPDBViolations=_numbers,
    )
    | _anything,
    max_size=3,
)

ARGS = _object(
    Pod=_pod, NodeNames=_names, Nodes=st.none() | _object(items=st.none() | st.lists(_node, max_size=3))
)
PREEMPTION = _object(
    Pod=_pod, NodeNameToVictims=st.none() | _victims, NodeNameToMetaVictims=st.none() | _victims
)
BINDING = _object(PodName=_texts, PodNamespace=_texts, PodUID=st.sampled_from(UIDS) | _texts, Node=_texts)
REVIEW = _object(
    apiVersion=st.just("admission.k8s.io/v1"),
    kind=st.just("AdmissionReview"),
    request=_object(uid=_texts, object=_pod, operation=_texts, kind=_anything) | _anything,
)


def _dumped(value: Any) -> bytes:
    return json.dumps(
        value
    ).encode()  # writes half surrogates and numbers of any size, as a broken client would


@st.composite
def _broken(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """A good body, cut or with a few bytes changed."""
    body = bytearray(draw(whole))
    if draw(st.booleans()):
        return bytes(body[: draw(st.integers(0, len(body)))])
    for _ in range(draw(st.integers(1, 3))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body)


def _deep(opening: str, closing: str) -> st.SearchStrategy[bytes]:
    return st.sampled_from([10, 900, 5000, 100_000]).map(
        lambda depth: (opening * depth + closing * depth).encode()
    )


def bodies(good: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """Bodies for a route that wants something like `good`."""
    whole = good.map(_dumped)
    return st.one_of(
        whole,
        whole,
        whole,
        _broken(whole),
        _anything.map(_dumped),
        st.binary(max_size=40),
        st.sampled_from([b"", b"null", b"[]", b'{"Pod":', b"\xff\xfe", b"{" + b'"a":1,' * 9 + b'"a":1}']),
        _deep("[", "]"),
        _deep('{"Pod":', "}"),
        _deep('{"metadata":{"annotations":', "}}"),
        st.builds(
            lambda first, second: first[:-1] + b"," + second[1:], whole, whole
        ),  # keys twice, or nonsense
        st.integers(1, 5000).map(
            lambda count: msgspec.json.encode({"Pod": {}, "NodeNames": [f"n{n}" for n in range(count)]})
        ),
    )


ROUTES = {
    "/gpushare-scheduler/filter": bodies(ARGS),
    "/gpushare-scheduler/prioritize": bodies(ARGS),
    "/gpushare-scheduler/preempt": bodies(PREEMPTION),
    "/gpushare-scheduler/bind": bodies(BINDING),
    "/admission/mutate": bodies(REVIEW),
    "/admission/validate": bodies(REVIEW),
}
