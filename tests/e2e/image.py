"""Images for a node that can pull nothing: one layer around a static busybox, as an OCI archive."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

APPLETS = ("cat", "echo", "env", "grep", "sh", "sleep", "sort", "true")
FOLDERS = ("bin", "dev", "etc", "proc", "sys", "tmp")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def write_image(path: Path, *, name: str, shell: Path, command: Sequence[str]) -> None:
    """Write an archive (OCI image layout 1.0) that containerd imports under this name."""
    root = _tar(
        {"bin/busybox": shell.read_bytes()},
        folders=FOLDERS,
        links={f"bin/{each}": "busybox" for each in APPLETS},
    )
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    config = _json(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Cmd": list(command), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(root)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(config, kind=_CONFIG),
            "layers": [_descriptor(root, kind=_LAYER)],
        }
    )
    named = _descriptor(manifest, kind=_MANIFEST) | {"annotations": {"io.containerd.image.name": name}}
    blobs = {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (root, config, manifest)}
    layout = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"})}
    index = {"index.json": _json({"schemaVersion": 2, "manifests": [named]})}
    path.write_bytes(_tar(layout | index | blobs))


def _tar(
    files: Mapping[str, bytes], *, folders: Sequence[str] = (), links: Mapping[str, str] | None = None
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in folders:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for name, content in files.items():
            file = tarfile.TarInfo(name)
            file.size, file.mode = len(content), 0o755
            tar.addfile(file, io.BytesIO(content))
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    return buffer.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(blob: bytes, *, kind: str) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}
