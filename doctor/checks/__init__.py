"""Every check with its name, in the order in which a reader should mend things."""

from __future__ import annotations

from doctor.checks.admission import admission_installed, admission_refusal, admission_slot, node_fence
from doctor.checks.books import cards_missing, cards_overcommitted, nodes_closed
from doctor.checks.extender import extender_called, extender_reachable, extender_ready, extender_running
from doctor.checks.nodes import cards_healthy, node_capacity, node_cards, node_slots, rival_plugins, unit
from doctor.checks.plugin import plugin_on_nodes, plugin_running
from doctor.checks.pods import (
    pods_refused_by_kubelet,
    pods_scheduler,
    pods_unreadable,
    pods_waiting_for_kubelet,
    pods_waiting_for_room,
    pods_without_card,
)
from doctor.checks.scheduler import scheduler_active, scheduler_config, scheduler_version
from doctor.checks.versions import classic_components, kubernetes_version, versions
from doctor.checks.workloads import workloads_refused
from doctor.findings import Check

CHECKS = (
    Check(name="kubernetes-version", ask=kubernetes_version),
    Check(name="extender-running", ask=extender_running),
    Check(name="extender-reachable", ask=extender_reachable),
    Check(name="extender-ready", ask=extender_ready),
    Check(name="scheduler-active", ask=scheduler_active),
    Check(name="scheduler-config", ask=scheduler_config),
    Check(name="scheduler-version", ask=scheduler_version),
    Check(name="extender-called", ask=extender_called),
    Check(name="admission-installed", ask=admission_installed),
    Check(name="admission-slot", ask=admission_slot),
    Check(name="admission-refusal", ask=admission_refusal),
    Check(name="node-fence", ask=node_fence),
    Check(name="plugin-running", ask=plugin_running),
    Check(name="plugin-on-nodes", ask=plugin_on_nodes),
    Check(name="node-cards", ask=node_cards),
    Check(name="node-capacity", ask=node_capacity),
    Check(name="node-slots", ask=node_slots),
    Check(name="cards-healthy", ask=cards_healthy),
    Check(name="unit", ask=unit),
    Check(name="rival-plugins", ask=rival_plugins),
    Check(name="nodes-closed", ask=nodes_closed),
    Check(name="cards-overcommitted", ask=cards_overcommitted),
    Check(name="cards-missing", ask=cards_missing),
    Check(name="pods-scheduler", ask=pods_scheduler),
    Check(name="pods-without-card", ask=pods_without_card),
    Check(name="pods-unreadable", ask=pods_unreadable),
    Check(name="pods-waiting-for-room", ask=pods_waiting_for_room),
    Check(name="pods-waiting-for-kubelet", ask=pods_waiting_for_kubelet),
    Check(name="pods-refused-by-kubelet", ask=pods_refused_by_kubelet),
    Check(name="workloads-refused", ask=workloads_refused),
    Check(name="versions", ask=versions),
    Check(name="classic-components", ask=classic_components),
)
