"""The sandbox's own endpoints under ``/_sandbox``: order faults and set webhooks from outside the process."""

from typing import Any, TypeVar

import msgspec

from sandbox.apiserver.admission import Admission
from sandbox.apiserver.errors import BadRequest, MethodNotAllowed, NotFound
from sandbox.apiserver.faults import Fault, Faults, Rule
from sandbox.apiserver.handlers import Answer, encode
from sandbox.apiserver.routes import Request
from sandbox.apiserver.shapes import decode_json

PREFIX = "/_sandbox/"
_Shape = TypeVar("_Shape")


class _Webhooks(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    mutating: str | None = None
    validating: str | None = None


class Controls:
    """``faults`` (GET, POST, DELETE), ``faults/NUMBER`` (DELETE) and ``webhooks`` (GET, PUT).

    A POST to ``faults`` takes a rule, or one of the actions that strike at once:
    ``{"action": "cut-watches", "client": …}`` and ``{"action": "expire-history"}``.
    """

    def __init__(self, *, faults: Faults, admission: Admission) -> None:
        self._faults = faults
        self._admission = admission

    def answer(self, request: Request) -> Answer:
        """Carry out a request; raises ApiError."""
        match request.path.removeprefix(PREFIX).strip("/").split("/"):
            case ["faults"] if request.method == "GET":
                return encode([_shown(fault) for fault in self._faults.in_force()])
            case ["faults"] if request.method == "POST":
                return self._order(decode_json(request.body))
            case ["faults"] if request.method == "DELETE":
                self._faults.clear()
                return encode([])
            case ["faults", number] if request.method == "DELETE":
                if not number.isdigit() or not self._faults.remove(int(number)):
                    raise NotFound(f"there is no fault {number!r}")
                return encode({})
            case ["webhooks"] if request.method in ("GET", "PUT"):
                if request.method == "PUT":
                    wanted = _convert(decode_json(request.body), _Webhooks)
                    self._admission.mutating, self._admission.validating = wanted.mutating, wanted.validating
                return encode(
                    {"mutating": self._admission.mutating, "validating": self._admission.validating}
                )
            case ["faults"] | ["faults", _] | ["webhooks"]:
                raise MethodNotAllowed
        raise NotFound.route()

    def _order(self, sent: Any) -> Answer:
        match sent:
            case {"action": "expire-history"}:
                self._faults.expire_history()
                return encode({})
            case {"action": "cut-watches"}:
                return encode({"cut": self._faults.cut_watches(client=str(sent.get("client", "")))})
        return encode(_shown(self._faults.add(_convert(sent, Rule))), status=201)


def _shown(fault: Fault) -> dict[str, Any]:
    return {"number": fault.number, "hits": fault.hits, "rule": fault.rule}


def _convert(value: Any, shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise BadRequest(str(error)) from error
