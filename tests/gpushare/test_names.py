"""Every name derives from the memory resource, and only from one that Kubernetes would take."""

import re
from dataclasses import asdict

import pytest

from gpushare.errors import ResourceNameError
from gpushare.names import DEFAULT_MEMORY_RESOURCE, Names


def test_default_names_are_the_classic_ones() -> None:
    names = Names.of()
    assert (names.memory, names.slot, names.count) == (
        "aliyun.com/gpu-mem",
        "aliyun.com/gpu-slot",
        "aliyun.com/gpu-count",
    )
    assert (names.cards, names.allocation, names.policy) == (
        "aliyun.com/gpu-cards",
        "aliyun.com/gpu-allocation",
        "aliyun.com/gpu-policy",
    )
    assert (names.index, names.pod_memory, names.container_memory, names.card_memory) == (
        "ALIYUN_COM_GPU_MEM_IDX",
        "ALIYUN_COM_GPU_MEM_POD",
        "ALIYUN_COM_GPU_MEM_CONTAINER",
        "ALIYUN_COM_GPU_MEM_DEV",
    )
    assert names.assume_time == "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
    assert names.assigned == "ALIYUN_COM_GPU_MEM_ASSIGNED"


def test_another_resource_moves_every_name_to_its_own_domain() -> None:
    names = Names.of("gpu-1.example.org/Mem_v.2")
    assert names.domain == "gpu-1.example.org"
    assert names.slot == "gpu-1.example.org/gpu-slot"
    assert names.index == "GPU_1_EXAMPLE_ORG_MEM_V_2_IDX"


@pytest.mark.parametrize(
    "resource",
    [
        "",
        "gpu-mem",
        "/gpu-mem",
        "aliyun.com/",
        "aliyun.com/gpu/mem",
        "Aliyun.com/gpu-mem",
        "aliyun..com/gpu-mem",
        "-aliyun.com/gpu-mem",
        "aliyun.com/gpu-mem-",
        "aliyun.com/gpu mem",
        "aliyun.com/gpu-mem\n",
        "aliyun.com/gpü",
        "аliyun.com/gpu-mem",  # a Cyrillic letter
        f"{'a' * 64}.com/m",
        f"aliyun.com/{'m' * 64}",
    ],
)
def test_impossible_resource_names_are_refused(resource: str) -> None:
    with pytest.raises(ResourceNameError, match="domain/name"):
        Names.of(resource)


@pytest.mark.parametrize(
    "resource", ["kubernetes.io/gpu", "node.kubernetes.io/gpu", "mykubernetes.io/gpu", "requests.a.com/gpu"]
)
def test_names_that_kubernetes_does_not_count_as_extended_resources_are_refused(resource: str) -> None:
    with pytest.raises(ResourceNameError, match="Kubernetes keeps names"):
        Names.of(resource)


@pytest.mark.parametrize(
    ("resource", "owner"),
    [
        ("nvidia.com/gpu", "nvidia.com are whole cards"),
        ("a.nvidia.com/gpu", "nvidia.com are whole cards"),
        ("k8s.io/gpu", "k8s.io are Kubernetes' own"),
    ],
)
def test_names_of_others_domains_are_refused(resource: str, owner: str) -> None:
    with pytest.raises(ResourceNameError, match=f"{owner}.*or a name of your own domain"):
        Names.of(resource)
    assert Names.of(f"my-{resource.removeprefix('a.')}")


@pytest.mark.parametrize("resource", ["aliyun.com/gpu-slot", "aliyun.com/gpu-count"])
def test_a_memory_resource_named_as_its_own_companion_is_refused(resource: str) -> None:
    with pytest.raises(ResourceNameError, match="another meaning"):
        Names.of(resource)


def test_a_resource_too_long_for_the_annotations_derived_from_it_is_refused() -> None:
    longest = f"{'a' * 40}.com/{'m' * 6}"
    assert len(Names.of(longest).assume_time) == 63, "Kubernetes' limit of an annotation's name"
    with pytest.raises(ResourceNameError, match="51 characters"):
        Names.of(f"{longest}m")


@pytest.mark.parametrize("resource", [DEFAULT_MEMORY_RESOURCE, "a/b", f"{'a.' * 20}com/m-_.m"])
def test_every_derived_name_is_distinct_and_one_that_kubernetes_takes(resource: str) -> None:
    derived = asdict(Names.of(resource))
    assert len(set(derived.values())) == len(derived)
    for name in derived.values():
        part = name.rpartition("/")[2]
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", part)
