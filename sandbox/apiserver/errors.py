"""What the API server refuses, in the words of Kubernetes.

    ApiError                an answer with a Status body
    ├── BadRequest          400
    ├── Forbidden           403
    ├── NotFound            404
    ├── MethodNotAllowed    405
    ├── NotAcceptable       406
    ├── AlreadyExists       409
    ├── Conflict            409
    ├── Expired             410
    ├── UnsupportedMediaType 415
    ├── Invalid             422, with a cause per field
    ├── InternalError       500
    ├── ServiceUnavailable  503
    └── Timeout             504

Clients branch on ``reason`` and people read ``message``; both are spelled as Kubernetes 1.36 spells them.
"""

# ruff: noqa: N818 - the names are the reasons that Kubernetes gives

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sandbox.apiserver.kinds import Kind, Manifest


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One field that does not validate."""

    reason: str
    message: str
    field: str

    @classmethod
    def invalid(cls, *, field: str, value: object, detail: str) -> "Cause":
        """A value that breaks a rule."""
        shown = msgspec.json.encode(value).decode()
        return cls(reason="FieldValueInvalid", message=f"Invalid value: {shown}: {detail}", field=field)

    @classmethod
    def required(cls, *, field: str, detail: str = "") -> "Cause":
        """A value that has to be there."""
        tail = f": {detail}" if detail else ""
        return cls(reason="FieldValueRequired", message=f"Required value{tail}", field=field)

    @classmethod
    def duplicate(cls, *, field: str, value: object) -> "Cause":
        """A value that may stand only once."""
        shown = msgspec.json.encode(value).decode()
        return cls(reason="FieldValueDuplicate", message=f"Duplicate value: {shown}", field=field)

    @classmethod
    def not_supported(cls, *, field: str, value: object, supported: Sequence[str]) -> "Cause":
        """A value outside a closed set."""
        shown = msgspec.json.encode(value).decode()
        names = ", ".join(f'"{name}"' for name in supported)
        message = f"Unsupported value: {shown}: supported values: {names}"
        return cls(reason="FieldValueNotSupported", message=message, field=field)

    @classmethod
    def forbidden(cls, *, field: str, detail: str) -> "Cause":
        """A change that is not allowed."""
        return cls(reason="FieldValueForbidden", message=f"Forbidden: {detail}", field=field)


class ApiError(Exception):
    """A refusal, with everything its Status body says."""

    code = 500
    reason = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        code: int | None = None,
        reason: str | None = None,
        continue_token: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = None if details is None else dict(details)
        self.code = code or self.code
        self.reason = self.reason if reason is None else reason
        self.continue_token = continue_token
        self.retry_after = retry_after

    def status(self) -> Manifest:
        """The Status object that goes over the wire."""
        metadata = {"continue": self.continue_token} if self.continue_token else {}
        body: Manifest = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


class BadRequest(ApiError):
    """The request cannot be understood."""

    code = 400
    reason = "BadRequest"


class Forbidden(ApiError):
    """An admission rule refused the object."""

    code = 403
    reason = "Forbidden"

    @classmethod
    def of(cls, kind: Kind, *, name: str, why: str) -> "Forbidden":
        """In the words of Kubernetes' built-in admission plugins."""
        return cls(f'{kind.resource} "{name}" is forbidden: {why}', details=_details(kind, name))


class NotFound(ApiError):
    """The object or the route does not exist."""

    code = 404
    reason = "NotFound"

    @classmethod
    def of(cls, kind: Kind, *, name: str) -> "NotFound":
        """For a missing object."""
        return cls(f'{kind.resource} "{name}" not found', details=_details(kind, name))

    @classmethod
    def route(cls) -> "NotFound":
        """For a path that nothing serves."""
        return cls("the server could not find the requested resource", details={})


class MethodNotAllowed(ApiError):
    """The route exists for other methods only."""

    code = 405
    reason = "MethodNotAllowed"

    def __init__(self) -> None:
        super().__init__("the server does not allow this method on the requested resource", details={})


class NotAcceptable(ApiError):
    """The client wants an encoding other than JSON."""

    code = 406
    reason = "NotAcceptable"

    def __init__(self) -> None:
        super().__init__(
            "only the following media types are accepted: application/json, application/json;stream=watch"
        )


class AlreadyExists(ApiError):
    """The name is taken."""

    code = 409
    reason = "AlreadyExists"

    @classmethod
    def of(cls, kind: Kind, *, name: str) -> "AlreadyExists":
        """For an object of a kind."""
        return cls(f'{kind.resource} "{name}" already exists', details=_details(kind, name))


class Conflict(ApiError):
    """The object is not in the state that the request presumes."""

    code = 409
    reason = "Conflict"

    @classmethod
    def of(cls, kind: Kind, *, name: str, why: str, subresource: str = "") -> "Conflict":
        """``subresource`` is appended to the resource's name, as the binding endpoint does."""
        suffix = f"/{subresource}" if subresource else ""
        details = _details(kind, name)
        details["kind"] += suffix
        message = f'Operation cannot be fulfilled on {kind.resource}{suffix} "{name}": {why}'
        return cls(message, details=details)

    @classmethod
    def modified(cls, kind: Kind, *, name: str) -> "Conflict":
        """Optimistic concurrency: the version sent is not the current one."""
        why = "the object has been modified; please apply your changes to the latest version and try again"
        return cls.of(kind, name=name, why=why)

    @classmethod
    def precondition(
        cls, kind: Kind, *, namespace: str, name: str, what: str, given: str, actual: str
    ) -> "Conflict":
        """A UID or resourceVersion precondition that the stored object does not meet."""
        key = kind.etcd_key(namespace=namespace, name=name)
        why = (
            f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: {what} in precondition: {given}, {what} in object meta: {actual}"
        )
        return cls.of(kind, name=name, why=why)


class Expired(ApiError):
    """The version asked for is no longer in the history."""

    code = 410
    reason = "Expired"

    @classmethod
    def version(cls, *, asked: int, oldest: int) -> "Expired":
        """For a watch or an exact list from a version that is gone."""
        return cls(f"too old resource version: {asked} ({oldest})")


class UnsupportedMediaType(ApiError):
    """The body's content type is not served."""

    code = 415
    reason = "UnsupportedMediaType"

    @classmethod
    def of(cls, accepted: Sequence[str]) -> "UnsupportedMediaType":
        """Naming what would be accepted."""
        return cls(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(accepted)
        )


class Invalid(ApiError):
    """The object was understood and breaks rules."""

    code = 422
    reason = "Invalid"

    @classmethod
    def of(cls, kind: Kind, *, name: str, causes: Sequence[Cause]) -> "Invalid":
        """One message and one cause per broken rule."""
        return cls._of(kind.kind, kind.qualified_kind, group=kind.group, name=name, causes=causes)

    @classmethod
    def of_resource(cls, kind: Kind, *, name: str, causes: Sequence[Cause]) -> "Invalid":
        """The same, where Kubernetes names the resource and not the kind."""
        return cls._of(kind.plural, kind.resource, group=kind.group, name=name, causes=causes)

    @classmethod
    def _of(cls, kind: str, shown: str, *, group: str, name: str, causes: Sequence[Cause]) -> "Invalid":
        texts = [f"{cause.field}: {cause.message}" for cause in causes]
        joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        details: Manifest = {"name": name, "group": group, "kind": kind}
        if not name:
            del details["name"]
        if not group:
            del details["group"]
        details["causes"] = [msgspec.to_builtins(cause) for cause in causes]
        return cls(f'{shown} "{name}" is invalid: {joined}', details=details)


class InternalError(ApiError):
    """Something the server depends on failed."""

    @classmethod
    def of(cls, why: str) -> "InternalError":
        """In Kubernetes' wording."""
        return cls(f"Internal error occurred: {why}", details={"causes": [{"message": why}]})


class ServiceUnavailable(ApiError):
    """Nobody is there who could answer."""

    code = 503
    reason = "ServiceUnavailable"


class Timeout(ApiError):
    """The version asked for has not been reached."""

    code = 504
    reason = "Timeout"

    @classmethod
    def future_version(cls, *, asked: int, current: int) -> "Timeout":
        """For a list at a version that does not exist yet."""
        return cls(
            f"Timeout: Too large resource version: {asked}, current: {current}",
            details={
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
            retry_after=1,
        )


def cannot_handle(kind: Kind, why: str, *, version: str = "") -> BadRequest:
    """For a body that cannot be decoded as the kind."""
    message = f'{kind.kind} in version "{version or kind.version}" cannot be handled as a {kind.kind}: {why}'
    return BadRequest(message)


def _details(kind: Kind, name: str) -> dict[str, Any]:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    if not kind.group:
        del details["group"]
    return details
