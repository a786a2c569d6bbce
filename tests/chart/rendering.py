"""Renders the chart with Helm's engine as a given Kubernetes would have it rendered, without a cluster.

    release = render({"scheduler": {"mode": "external"}}, kubernetes="1.30")
    release.one("Deployment", "gpushare-extender")["spec"]

`lookup` finds nothing here; `tests.chart.secrets` has an API server with Secrets behind it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate  # type: ignore[import-untyped]
import yaml
from helm_python import _native

CHART = Path(__file__).parents[2] / "charts" / "gpushare"
OLDEST, NEWEST = 25, 36
"""Minor versions of Kubernetes that the chart is for."""
VERSIONS = tuple(f"1.{minor}" for minor in range(OLDEST, NEWEST + 1))
NAMESPACE = "gpushare-system"

Values = Mapping[str, Any]
Object = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Release:
    """What `helm install` would send to the API server, and say."""

    objects: tuple[Object, ...]
    """Hooks included, in the order of the files."""
    notes: str
    kubernetes: str

    def of(self, kind: str) -> list[Object]:
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind: str, name: str) -> Object:
        """The one of this kind and name; an `AssertionError` that lists what there is otherwise."""
        found = [each for each in self.of(kind) if each["metadata"]["name"] == name]
        there = [f"{each['kind']}/{each['metadata']['name']}" for each in self.objects]
        assert len(found) == 1, f"{kind}/{name} is there {len(found)} times; there are {', '.join(there)}"
        return found[0]

    def has(self, kind: str, name: str) -> bool:
        return any(each["metadata"]["name"] == name for each in self.of(kind))

    def pod_specs(self) -> Iterator[tuple[str, Object]]:
        """Every pod that would run, with its owner's kind and name."""
        for each in self.objects:
            template = each.get("spec", {}).get("template", {})
            if "spec" in template and "containers" in template["spec"]:
                yield f"{each['kind']}/{each['metadata']['name']}", template["spec"]


def render(
    values: Values | None = None,
    *,
    kubernetes: str = "1.36",
    namespace: str = NAMESPACE,
    name: str = "gpushare",
    chart: Path = CHART,
) -> Release:
    """Render with these values beside the chart's own; raises `helm_python.HelmError` as `helm` refuses.

    `kubernetes` is a version as a cluster gives it: `1.30`, `v1.30.5-gke.100`.
    """
    options = {
        "name": name,
        "namespace": namespace,
        "is_install": True,
        "kube_version": full_version(kubernetes),
    }
    return parse(
        json.loads(_rendered(chart, json.dumps(values or {}), json.dumps(options))), kubernetes=kubernetes
    )


@functools.lru_cache(maxsize=256)
def _rendered(chart: Path, values: str, options: str) -> str:
    with helm_python.Chart.load(chart) as loaded:
        loaded.validate_schema(json.loads(values))
        # The engine takes kube_version, its Python method does not pass it on (helm-python-sdk 0.2.2).
        return _native.call_string("helm_render", loaded._raw(), values, options)


def parse(manifests: Mapping[str, str], *, kubernetes: str) -> Release:
    """Take Helm's answer, text by file, apart."""
    objects: list[Object] = []
    notes = ""
    for path, text in manifests.items():
        if path.endswith("NOTES.txt"):
            notes = text
        elif path.endswith((".yaml", ".yml")):
            objects += [each for each in yaml.load_all(text, Loader=_OnceLoader) if each]
    return Release(objects=tuple(objects), notes=notes, kubernetes=kubernetes)


def lint(values: Values | None = None, *, kubernetes: str = "1.36") -> list[str]:
    """What `helm lint --strict` has to say, warnings and errors."""
    report = helm_python.lint(
        CHART, dict(values or {}), strict=True, namespace=NAMESPACE, kube_version=full_version(kubernetes)
    )
    warning = 2
    found = [f"{each['path']}: {each['error']}" for each in report["messages"] if each["severity"] >= warning]
    return found + [str(error) for error in report["errors"] or ()]


FOREIGN = frozenset({"monitoring.coreos.com", "cert-manager.io"})
"""API groups of objects that Kubernetes has no schema for."""


def invalid(release: Release) -> list[str]:
    """What the API server of that version would say against the objects: unknown keys, wrong types."""
    version = ".".join(full_version(release.kubernetes).removeprefix("v").split(".")[:2])
    faults = []
    for each in release.objects:
        if each["apiVersion"].split("/")[0] in FOREIGN:
            continue
        fault = _fault(json.dumps(each), version)
        if fault:
            where = f"{each['kind']}/{each['metadata']['name']} ({each['apiVersion']}, Kubernetes {version})"
            faults.append(f"{where}: {fault}")
    return faults


@functools.cache
def _fault(text: str, version: str) -> str:
    """Of one object; most are the same whatever the values."""
    try:
        kubernetes_validate.validate(json.loads(text), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError:
        return "this Kubernetes knows no such kind"
    return ""


def full_version(version: str) -> str:
    """`1.30` is v1.30.0."""
    plain = version.removeprefix("v")
    return f"v{plain}.0" if plain.count(".") == 1 else f"v{plain}"


@functools.cache
def default_values() -> Object:
    """The chart's own values. Do not change them."""
    values: Object = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


class _OnceLoader(yaml.SafeLoader):
    """Refuses a key that is written twice, which YAML forbids and PyYAML lets pass."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        assert not twice, f"{node.start_mark}: written twice: {twice}"
        return super().construct_mapping(node, deep=deep)


def noted_configuration(release: Release) -> Any:
    """The KubeSchedulerConfiguration that the notes of mode external print."""
    _, _, rest = release.notes.partition("  apiVersion: kubescheduler")
    lines = ("  apiVersion: kubescheduler" + rest).splitlines()
    document = []
    for line in lines:
        if not line.startswith("  "):
            break
        document.append(line)
    return yaml.safe_load("\n".join(document))
