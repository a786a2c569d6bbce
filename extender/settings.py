"""What the extender can be told: by flag, by environment variable `GPUSHARE_…`, in the file of `--config`."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from extender.audit import EVERY
from extender.tls import TlsFiles
from gpushare.placement import Policy
from kubeapi.leases import pod_namespace
from kubeapi.listen import are_one, split_address
from kubeapi.settings import Settings


def variable_pod_name() -> str:
    """POD_NAME, as the downward API is commonly wired."""
    return os.environ.get("POD_NAME", "")


class ExtenderSettings(Settings):
    """Tells kube-scheduler which nodes have a GPU card with room, and gives pods their cards.

    Every flag is also an environment variable (GPUSHARE_LISTEN) and a key of the --config file (listen), of
    which log-level and policy are followed while the program runs.

    `gpushare-extender scheduler-config` prints what kube-scheduler has to be told.
    """

    listen: str = "127.0.0.1:39999"
    """HOST:PORT for kube-scheduler's calls, and for all that has no address of its own"""
    admission_listen: str | None = None
    """HOST:PORT for the API server's admission reviews (HTTPS)"""
    view_listen: str | None = None
    """HOST:PORT for what only reads: probes, metrics, inspect (HTTP)"""
    ui: bool = False
    """serve the page at /ui/, beside what only reads"""
    tls_cert: Path | None = None
    """PEM certificate to serve with (HTTPS), read again when it changes"""
    tls_key: Path | None = None
    """its private key"""
    client_ca: Path | None = None
    """PEM CA certificates: --listen answers only callers with a certificate of theirs"""
    admission_tls_cert: Path | None = None
    """certificate of --admission-listen, when it is not --tls-cert"""
    admission_tls_key: Path | None = None
    """its private key"""
    insecure: bool = False
    """allow --listen where others can reach it without a client certificate: whoever can, can bind pods"""
    add_slots: bool = True
    """give pods the slots that they lack; off where the device plugins count units"""
    set_scheduler_name: str = ""
    """schedulerName that admission gives to pods that ask for GPU memory and name none; empty: none"""
    set_runtime_class_name: str = ""
    """runtimeClassName that admission gives to pods that ask for GPU memory and name none; empty: none"""
    policy: Literal["binpack", "spread"] = "binpack"
    """which of the fitting cards a pod gets: the one with the least left, or the most"""
    reserve: Annotated[int, Field(ge=0)] = 0
    """units of every card that no pod gets"""
    audit_interval: Annotated[float, Field(ge=1)] = EVERY
    """seconds from one comparison of the ledger with a fresh list of pods to the next"""
    leader_elect: bool = False
    """let one replica answer at a time: for replicas behind a Service that several kube-schedulers share"""
    lease_name: str = "gpushare-extender"
    """the Lease that the replicas compete for"""
    lease_namespace: Annotated[str, Field(default_factory=pod_namespace)]
    """its namespace: by default the pod's own, kube-system outside of a cluster"""
    leader_label: str = ""
    """label that the leader puts on its own pod for a Service to select by; the others are ready too, then"""
    pod_name: Annotated[str, Field(default_factory=variable_pod_name)]
    """name of the pod this runs in, for --leader-label; also read from POD_NAME"""
    pod_namespace: Annotated[str, Field(default_factory=pod_namespace)]
    """its namespace: by default the pod's own"""
    shutdown_grace: Annotated[float, Field(ge=0, le=600)] = 0.0
    """seconds to go on answering, not ready, after SIGTERM: what a Service needs to send nobody here"""

    @field_validator(
        "tls_cert", "tls_key", "client_ca", "admission_tls_cert", "admission_tls_key", mode="before"
    )
    @classmethod
    def _no_file(cls, value: object) -> object:
        return None if value == "" else value  # as a chart leaves it

    @field_validator("admission_listen", "view_listen", mode="before")
    @classmethod
    def _no_address(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("listen", "admission_listen", "view_listen")
    @classmethod
    def _has_host_and_port(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value

    @model_validator(mode="after")
    def _addresses_differ(self) -> Self:
        taken = [("--listen", self.listen)]
        for flag, address in (
            ("--admission-listen", self.admission_listen),
            ("--view-listen", self.view_listen),
        ):
            if address is None:
                continue
            for other, its in taken:
                if are_one(address, its):
                    raise ValueError(
                        f"{flag} {address} is the address of {other}: give it another, or leave it out"
                    )
            taken.append((flag, address))
        return self

    @field_validator("lease_name", "lease_namespace")
    @classmethod
    def _is_given(cls, value: str) -> str:
        if not value:
            raise ValueError("must not be empty")
        return value

    @model_validator(mode="after")
    def _label_is_one_of_a_pod(self) -> Self:
        if not self.leader_label:
            return self
        if not _LABEL_KEY.fullmatch(self.leader_label):
            raise ValueError(
                f"--leader-label {self.leader_label} is no label of Kubernetes, as example.com/leader is"
            )
        if not self.leader_elect:
            raise ValueError("--leader-label needs --leader-elect")
        if not self.pod_name:
            raise ValueError("--leader-label needs --pod-name (or POD_NAME): the pod that gets it")
        return self

    @model_validator(mode="after")
    def _certificates_are_whole(self) -> Self:
        for cert, key, prefix in (
            (self.tls_cert, self.tls_key, "--tls"),
            (self.admission_tls_cert, self.admission_tls_key, "--admission-tls"),
        ):
            if (cert is None) != (key is None):
                raise ValueError(f"{prefix}-cert and {prefix}-key need each other")
        if self.client_ca and not self.tls_cert:
            raise ValueError("--client-ca needs --tls-cert and --tls-key")
        if self.admission_tls_cert and not self.admission_listen:
            raise ValueError("--admission-tls-cert needs --admission-listen")
        return self

    @model_validator(mode="after")
    def _plain_http_stays_at_home(self) -> Self:
        if self.insecure:
            return self
        if (not self.verbs_tls or not self.client_ca) and not is_loopback(self.listen):
            raise ValueError(
                f"--listen {self.listen} lets anybody who can reach it bind pods: "
                "give --tls-cert, --tls-key and --client-ca, or --insecure"
            )
        if self.admission_listen and not self.admission_tls and not is_loopback(self.admission_listen):
            raise ValueError(
                f"--admission-listen {self.admission_listen} needs a certificate, the API server speaks only "
                "HTTPS to webhooks: give --admission-tls-cert and --admission-tls-key, or --insecure"
            )
        return self

    @property
    def verbs_tls(self) -> TlsFiles | None:
        """What `--listen` is served with, `None` for plain HTTP."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(cert=self.tls_cert, key=self.tls_key, client_ca=self.client_ca)

    @property
    def admission_tls(self) -> TlsFiles | None:
        """What `--admission-listen` is served with. The API server shows no certificate unless told to."""
        if self.admission_tls_cert is not None and self.admission_tls_key is not None:
            return TlsFiles(cert=self.admission_tls_cert, key=self.admission_tls_key)
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(cert=self.tls_cert, key=self.tls_key)

    @property
    def default_policy(self) -> Policy:
        """For pods that ask for none."""
        return Policy(self.policy)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach it: 127.0.0.0/8, ::1 or `localhost`."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return False  # another name: it resolves to whatever it resolves to
    return parsed == ipaddress.IPv6Address("::1") or parsed in _LOOPBACK


# IsQualifiedName (1.36): a DNS subdomain may stand before the name.
_LABEL_KEY = re.compile(
    r"((?=[^/]{1,253}/)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(?=[^/]{1,63}\Z)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)

_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
