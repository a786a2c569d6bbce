"""The generated kubelet APIs: fresh, importable together, and with kubelet's numbers on the wire."""

import runpy
import subprocess
import sys
from pathlib import Path

from deviceplugin.kubeletapi import deviceplugin_v1beta1_pb2 as v1beta1
from deviceplugin.kubeletapi import podresources_v1_pb2 as podresources

ROOT = Path(__file__).resolve().parent.parent
COMMITTED = ROOT / "deviceplugin" / "kubeletapi"


def generated_texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*_pb2*.py*")}


def test_committed_code_is_what_the_protos_generate(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "proto" / "generate.py"))["generate"](tmp_path)
    fresh = generated_texts(tmp_path / "deviceplugin" / "kubeletapi")
    assert len(fresh) == 8
    assert generated_texts(COMMITTED) == fresh, "stale: run `make proto` and commit the result"


def test_both_apis_import_in_one_process_without_a_warning() -> None:
    modules = sorted(path.stem for path in COMMITTED.glob("*_pb2*.py"))
    imports = "; ".join(f"import deviceplugin.kubeletapi.{module}" for module in modules)
    subprocess.run([sys.executable, "-W", "error", "-c", imports], check=True, cwd=ROOT)


def test_numbers_on_the_wire_are_kubelets() -> None:
    register = v1beta1.RegisterRequest(
        version="v1beta1",
        endpoint="a.sock",
        resource_name="a.io/b",
        options=v1beta1.DevicePluginOptions(get_preferred_allocation_available=True),
    )
    assert register.SerializeToString() == b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x06a.io/b\x22\x02\x10\x01"
    device = v1beta1.Device(ID="a", health="Healthy", topology={"nodes": [{"ID": 1}]})
    assert device.SerializeToString() == b"\x0a\x01a\x12\x07Healthy\x1a\x04\x0a\x02\x08\x01"
    answer = v1beta1.ContainerAllocateResponse(envs={"k": "v"}, cdi_devices=[{"name": "n"}])
    assert answer.SerializeToString() == b"\x0a\x06\x0a\x01k\x12\x01v\x2a\x03\x0a\x01n"
    preferred = v1beta1.ContainerPreferredAllocationRequest(
        available_deviceIDs=["a", "b"], must_include_deviceIDs=["a"], allocation_size=2
    )
    assert preferred.SerializeToString() == b"\x0a\x01a\x0a\x01b\x12\x01a\x18\x02"
    container = podresources.ContainerResources(
        name="c", devices=[{"resource_name": "r", "device_ids": ["d"]}], cpu_ids=[3]
    )
    assert container.SerializeToString() == b"\x0a\x01c\x12\x06\x0a\x01r\x12\x01d\x1a\x01\x03"
    pod = podresources.PodResources(name="p", namespace="n", containers=[{"name": "c"}])
    assert pod.SerializeToString() == b"\x0a\x01p\x12\x01n\x1a\x03\x0a\x01c"


def test_services_carry_kubelets_paths() -> None:
    registration = v1beta1.DESCRIPTOR.services_by_name["Registration"]
    plugin = v1beta1.DESCRIPTOR.services_by_name["DevicePlugin"]
    lister = podresources.DESCRIPTOR.services_by_name["PodResourcesLister"]
    assert [method.full_name for method in registration.methods] == ["v1beta1.Registration.Register"]
    assert [method.name for method in plugin.methods] == [
        "GetDevicePluginOptions",
        "ListAndWatch",
        "GetPreferredAllocation",
        "Allocate",
        "PreStartContainer",
    ]
    assert lister.full_name == "v1.PodResourcesLister"
    assert [method.name for method in lister.methods] == ["List", "GetAllocatableResources", "Get"]
