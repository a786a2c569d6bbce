"""Values as people set them, each for a part of the chart that the others do not render."""

from __future__ import annotations

from typing import Any

SETS: dict[str, dict[str, Any]] = {
    "default": {},
    "external": {
        "scheduler": {"mode": "external", "policy": "spread", "replicas": 3, "reserve": 512},
        "external": {
            "clusterIP": "10.96.0.77",
            "extraNames": ["gpushare.example"],
            "extraAddresses": ["192.0.2.7"],
        },
    },
    "cert-manager": {"scheduler": {"mode": "external"}, "certificates": {"mode": "cert-manager"}},
    "kind": {
        "devicePlugin": {
            "simulatedCards": [
                {"uuid": "GPU-a", "memory": 16276, "model": "Tesla T4", "numa": 0},
                {"uuid": "GPU-b", "memory": 1048576, "minor": 1, "healthy": False, "reason": "a demo"},
            ]
        },
        "scheduler": {"replicas": 1, "podDisruptionBudget": {"enabled": False}},
    },
    "units": {
        "resource": {"memory": "example.com/vram", "unit": "GiB"},
        "admission": {"mode": "none"},
        "nodeFence": {"enabled": False},
        "devicePlugin": {"mode": "units", "maxDevices": 1000000},
        "networkPolicy": {"enabled": False},
    },
    "everything": {
        "image": {
            "repository": "registry.example/gpushare",
            "digest": "sha256:" + "0a" * 32,
            "pullSecrets": [{"name": "registry"}],
        },
        "listenHost": "0.0.0.0",
        "scheduler": {
            "policy": "spread",
            "ui": True,
            "logLevel": "debug",
            "auditInterval": 60.5,
            "extenderWeight": 11,
            "image": {"repository": "registry.example/kube-scheduler", "tag": "v1.36.1"},
            "nodeSelector": {"pool": "system"},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]
                    }
                }
            },
            "podAnnotations": {"example.com/team": "gpu"},
            "podLabels": {"team": "gpu"},
        },
        "admission": {"mode": "webhook", "exemptNamespaces": ["istio-system"]},
        "devicePlugin": {
            "slots": 8,
            "reserve": 1024,
            "exclude": [0, "GPU-8c", "node-a:1"],
            "memoryOf": ["node-b:0=98304"],
            "deviceListStrategy": ["volume-mounts", "cdi-cri"],
            "passDeviceSpecs": True,
            "nvidiaDevRoot": "/run/nvidia/driver",
            "health": {"interval": 2.5, "failures": 5, "recoveries": 1, "disable": "all", "enable": "79,109"},
            "runtimeClassName": "",
            "maxSurge": "10%",
            "seLinuxOptions": {"type": "container_runtime_t"},
            "kubeletDir": "/var/snap/kubelet",
            "logLevel": "warning",
            "podAnnotations": {"example.com/team": "gpu"},
            "podLabels": {"team": "gpu"},
        },
        "networkPolicy": {"viewFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
        "monitoring": {
            "serviceMonitor": {"enabled": True},
            "rules": {"enabled": True},
            "dashboard": {"enabled": True},
        },
        "priorityClassQuota": {"enabled": False},
        "uninstall": {"timeout": 60},
    },
    "least": {
        "devicePlugin": {"enabled": False},
        "admission": {"mode": "none"},
        "nodeFence": {"enabled": False},
        "uninstall": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
}
"""By what they are for. Other tests take them by name."""
