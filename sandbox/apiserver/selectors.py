"""Label and field selectors, as lists and watches take them."""

import re
from collections.abc import Callable, Mapping

import msgspec

from sandbox.apiserver.errors import BadRequest
from sandbox.apiserver.kinds import Kind

Values = Mapping[str, str]
_Test = Callable[[Values], bool]


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What selectors can see of an object."""

    labels: Values
    fields: Values


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """A conjunction of requirements on labels and fields."""

    on_labels: tuple[_Test, ...] = ()
    on_fields: tuple[_Test, ...] = ()
    equal: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Fields that must have this very value (among `on_fields`): what an index can answer."""

    @property
    def selects_all(self) -> bool:
        """Whether there is no requirement."""
        return not self.on_labels and not self.on_fields

    def matches(self, subject: Subject) -> bool:
        """Whether the object meets every requirement."""
        return all(test(subject.labels) for test in self.on_labels) and all(
            test(subject.fields) for test in self.on_fields
        )


EVERYTHING = Selector()


def parse_selectors(*, kind: Kind, labels: str, fields: str) -> Selector:
    """Both selectors of a request; raises BadRequest with Kubernetes' wording."""
    equal: dict[str, str] = {}
    tests = _field_requirements(kind, fields, equal=equal)
    return Selector(on_labels=tuple(_label_requirements(labels)), on_fields=tuple(tests), equal=equal)


def _field_requirements(kind: Kind, text: str, *, equal: dict[str, str]) -> list[_Test]:
    tests: list[_Test] = []
    for term in (part for part in re.split(r"(?<!\\),", text) if part):
        matched = re.fullmatch(r"([^=!]*?)(!=|==|=)(.*)", term)
        if not matched:
            raise BadRequest(f"invalid selector: '{text}'; can't understand '{term}'")
        field, operator, value = matched[1].strip(), matched[2], re.sub(r"\\([\\,=])", r"\1", matched[3])
        if field not in ("metadata.name", "metadata.namespace", *kind.selectable):
            if kind.selectable:
                raise BadRequest(f"field label not supported: {field}")
            raise BadRequest(
                f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
            )
        if operator == "!=":
            tests.append(_differs(field, value))
        else:
            tests.append(_equals(field, value))
            equal[field] = value
    return tests


def _equals(key: str, value: str) -> _Test:
    return lambda values: values.get(key, "") == value


def _differs(key: str, value: str) -> _Test:
    return lambda values: values.get(key, "") != value


_KEY = r"(?P<key>[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_VALUE = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_EXISTS = re.compile(rf"(?P<not>!?)\s*{_KEY}")
_EQUALITY = re.compile(rf"{_KEY}\s*(?P<op>==|=|!=|>|<)\s*(?P<value>(?:{_VALUE})?)")
_SET = re.compile(rf"{_KEY}\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")


def _label_requirements(text: str) -> list[_Test]:
    return [_label_test(term.strip(), text) for term in re.split(r",(?![^(]*\))", text) if text.strip()]


def _label_test(term: str, text: str) -> _Test:
    if matched := _SET.fullmatch(term):
        values = {value.strip() for value in matched["values"].split(",")}
        if all(re.fullmatch(rf"(?:{_VALUE})?", value) for value in values):
            return (
                _one_of(matched["key"], values) if matched["op"] == "in" else _none_of(matched["key"], values)
            )
    elif matched := _EQUALITY.fullmatch(term):
        key, operator, value = matched["key"], matched["op"], matched["value"]
        if operator in "<>":
            if re.fullmatch(r"-?[0-9]+", value):
                return _compares(key, operator, int(value))
        elif operator == "!=":
            return lambda labels: labels.get(key) != value
        else:
            return lambda labels: labels.get(key) == value
    elif matched := _EXISTS.fullmatch(term):
        key = matched["key"]
        return (lambda labels: key not in labels) if matched["not"] else (lambda labels: key in labels)
    raise BadRequest(f"unable to parse requirement: found '{term}' in label selector '{text}'")


def _one_of(key: str, values: set[str]) -> _Test:
    return lambda labels: labels.get(key) in values


def _none_of(key: str, values: set[str]) -> _Test:
    return lambda labels: labels.get(key) not in values


def _compares(key: str, operator: str, bound: int) -> _Test:
    def test(labels: Values) -> bool:
        value = labels.get(key, "")
        if not re.fullmatch(r"-?[0-9]+", value):
            return False
        return int(value) > bound if operator == ">" else int(value) < bound

    return test
