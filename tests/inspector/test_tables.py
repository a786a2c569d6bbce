"""The tables, letter by letter; `·` stands for a blank at a line's end, which the classic tool prints too.

The default tables of clusters that the classic tool understands were printed by its own code.
"""

from textwrap import dedent

from gpushare.cards import Card
from inspector.details import details
from inspector.problems import notes
from inspector.summary import summary
from inspector.wide import wide
from tests.build import NAMES, card, container, node, pod
from tests.inspector.clusters import inspected


def text(expected: str) -> str:
    return dedent(expected).removeprefix("\n").replace("·", " ")


def test_mixed_cards_and_nodes_with_fewer_of_them() -> None:
    cluster = inspected(
        node("gpu-large", cards=[8192, 16384], address="10.0.0.11"),
        node("gpu-small", cards=[24576], address="10.0.0.12"),
        pod("a", memory=3000, on="gpu-large", cards=[1]),
        pod("b", memory=8192, on="gpu-large", cards=[0]),
        pod("c", memory=138, on="gpu-small", cards=[0]),
    )
    assert summary(cluster) == text(
        """
        NAME       IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(MiB)
        gpu-large  10.0.0.11  8192/8192              3000/16384             11192/24576
        gpu-small  10.0.0.12  138/24576              0/0                    138/24576
        -------------------------------------------------------------------------
        Allocated/Total GPU Memory In Cluster:
        11330/49152 (23%)··
        """
    )
    assert notes(cluster) == []


def test_no_nodes() -> None:
    cluster = inspected()
    assert summary(cluster) == text(
        """
        NAME  IPADDRESS  GPU Memory(MiB)

        Allocated/Total GPU Memory In Cluster:
        0/0 (0%)··
        """
    )
    assert notes(cluster) == ["no node shares cards as aliyun.com/gpu-mem"]


def test_one_node_of_many() -> None:
    cluster = inspected(
        node("n1", cards=[100], address="10.0.0.1"),
        node("n2", cards=[100, 100], address="10.0.0.2"),
        pod("a", memory=100, on="n2", cards=[1]),
        only="n2",
    )
    assert summary(cluster) == text(
        """
        NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(MiB)
        n2    10.0.0.2   0/100                  100/100                100/200
        ------------------------------------------------------
        Allocated/Total GPU Memory In Cluster:
        100/200 (50%)··
        """
    )


def test_gib_nothing_booked_and_everything_booked() -> None:
    empty = inspected(node(cards=[15], unit="GiB"), unit="GiB")
    assert summary(empty) == text(
        """
        NAME  IPADDRESS  GPU0(Allocated/Total)  GPU Memory(GiB)
        n1    unknown    0/15                   0/15
        -----------------------------------------
        Allocated/Total GPU Memory In Cluster:
        0/15 (0%)··
        """
    )
    full = inspected(node(cards=[15], unit="GiB"), pod("a", memory=15, on="n1", cards=[0]), unit="GiB")
    assert summary(full).endswith("\n15/15 (100%)  \n")


def test_the_unit_is_not_guessed_where_nobody_publishes_it() -> None:
    classic = inspected(node(cards=[15], classic=True), unit="")
    assert summary(classic).splitlines()[0] == "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU Memory"


def test_a_node_that_counts_otherwise_is_shown_and_not_added() -> None:
    cluster = inspected(node("n1", cards=[1000]), node("n2", cards=[15], unit="GiB"))
    assert summary(cluster) == text(
        """
        NAME  IPADDRESS  GPU0(Allocated/Total)  GPU Memory(MiB)
        n1    unknown    0/1000                 0/1000
        n2    unknown    0/15(GiB)              0/15(GiB)
        ---------------------------------------------
        Allocated/Total GPU Memory In Cluster:
        0/1000 (0%)··
        """
    )
    assert "node n2 counts GiB: it is not part of the cluster's total" in notes(cluster)


def test_columns_carry_the_real_indices_of_mig_instances() -> None:
    instances = [Card(index=index, uuid=f"MIG-n1-{index}", memory=9856) for index in (100, 103)]
    cluster = inspected(
        node("n1", cards=[card(memory=40960), *instances], address="10.0.0.1"),
        node("n2", cards=[16384], address="10.0.0.2"),
    )
    assert summary(cluster).splitlines()[:3] == [
        "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU100(Allocated/Total)  GPU103(Allocated/Total)  "
        "GPU Memory(MiB)",
        "n1    10.0.0.1   0/40960                0/9856                   0/9856                   0/60672",
        "n2    10.0.0.2   0/16384                0/0                      0/0                      0/16384",
    ]


def test_L10_pods_without_a_card_are_pending_and_close_their_node() -> None:
    cluster = inspected(
        node("n1", cards=[16384], address="10.0.0.1"),
        node("n2", cards=[8192], address="10.0.0.2"),
        pod("bypassed", memory=3000, on="n1"),
        pod("a", memory=1000, on="n1", cards=[0]),
    )
    assert summary(cluster) == text(
        """
        NAME  IPADDRESS  GPU0(Allocated/Total)  PENDING(Allocated)  GPU Memory(MiB)
        n1    10.0.0.1   1000/16384             3000                4000/16384
        n2    10.0.0.2   0/8192                                     0/8192
        -----------------------------------------------------------
        Allocated/Total GPU Memory In Cluster:
        4000/24576 (16%)··
        """
    )
    assert notes(cluster) == [
        "node n1: node takes no GPU pods until one of its pods is gone: "
        "default/bypassed has no card allocation"
    ]


def test_L6_pods_on_a_card_that_has_gone_are_pending() -> None:
    cluster = inspected(node(cards=[16384]), pod("a", memory=3000, on="n1", cards=[1]))
    assert summary(cluster).splitlines()[1] == (
        "n1    unknown    0/16384                3000                3000/16384"
    )
    assert notes(cluster) == []


def test_L7_more_than_a_card_has_is_shown_as_it_is() -> None:
    cluster = inspected(node(cards=[8192]), pod("a", memory=9000, on="n1", cards=[0]))
    assert summary(cluster).splitlines()[1] == "n1    unknown    9000/8192              9000/8192"


def test_a_node_whose_cards_cannot_be_read_has_no_row_and_a_remark() -> None:
    broken = node("n1", cards=[100])
    annotations = {NAMES.cards: "{"}
    metadata = type(broken.metadata)(name="n1", annotations=annotations)
    cluster = inspected(type(broken)(metadata=metadata), node("n2", cards=[100]))
    assert "n1" not in summary(cluster)
    (remark,) = notes(cluster)
    assert remark.startswith("node n1: node publishes unreadable GPU cards")


def test_waiting_pods_and_many_closed_nodes_are_remarks_beside_the_table() -> None:
    cluster = inspected(
        *(node(f"n{number:02}", cards=[100]) for number in range(12)),
        *(pod(f"p{number}", memory=1, on=f"n{number:02}") for number in range(12)),
        pod("late", memory=5),
    )
    found = notes(cluster)
    assert len(found) == 12
    assert found[-2:] == ["and 2 more: see -o wide", "1 pod waits for GPU memory: -d says why"]


def test_details_list_pods_by_card_with_state_and_containers() -> None:
    told = {NAMES.assigned: "true"}
    cluster = inspected(
        node("n1", cards=[8192, 16384], address="10.0.0.1"),
        pod(
            "web",
            containers=[container("main", memory=3000), container("side", memory=500), container("log")],
            on="n1",
            cards=[1],
            annotations=told,
        ),
        pod("train", memory=8000, slots=2, on="n1", cards=[0, 1]),
        pod("bypassed", memory=7, on="n1"),
        pod("lost", memory=9, on="n1", cards=[3]),
        node("n2", cards=[4096], address="10.0.0.2"),
        pod("large", memory=20000, created="2026-01-01T00:00:00Z"),
    )
    assert details(cluster) == text(
        """

        NAME:       n1
        IPADDRESS:  10.0.0.1
        CLOSED:     node takes no GPU pods until one of its pods is gone: default/bypassed has no card allocation

        NAME         NAMESPACE    GPU0(Allocated)  GPU1(Allocated)  Pending(Allocated)  STATE              CONTAINERS
        train        default      4000             4000             0                   WaitingForKubelet  GPU0: main=4000 GPU1: main=4000
        web          default      0                3500             0                   Assigned           main=3000,side=500
        lost         default      0                0                9                   MissingCard        main=9
        bypassed     default      0                0                7                   NoAllocation       -
        Allocated :  11516 (46%)··
        Total :      24576········
        ----------------------------------------------------------------------------------------------------------------------------------

        NAME:       n2
        IPADDRESS:  10.0.0.2

        NAME         NAMESPACE  GPU0(Allocated)  STATE  CONTAINERS
        Allocated :  0 (0%)·····
        Total :      4096·······
        ----------------------------------------------------------


        Allocated/Total GPU Memory In Cluster:  11516/28672 (40%)··

        CLOSED NODE  REASON
        n1           node takes no GPU pods until one of its pods is gone: default/bypassed has no card allocation

        POD WITHOUT CARD  NAMESPACE  NODE  ALLOCATED  STATE         PROBLEM
        bypassed          default    n1    7          NoAllocation  has no card allocation
        lost              default    n1    9          MissingCard   the node has no card 3 any more

        WAITING POD  NAMESPACE  ASKED  CARDS  SINCE                 REASON
        large        default    20000  1      2026-01-01T00:00:00Z  1 GPU memory request is larger than any card of the node, 1 node takes no GPU pods until one of its pods is gone
        """  # noqa: E501
    )


def test_L6_a_pod_with_one_of_its_cards_gone_is_shown_as_such() -> None:
    cluster = inspected(node(cards=[8192]), pod("half", memory=8000, slots=2, on="n1", cards=[0, 1]))
    (shown,) = [line for line in details(cluster).splitlines() if line.startswith("half ")][:1]
    assert shown.split() == [
        *("half", "default", "4000", "4000", "MissingCard"),
        *("GPU0:", "main=4000", "GPU1:", "main=4000"),
    ]


def test_wide_has_a_row_a_card() -> None:
    cards = [
        Card(index=0, uuid="GPU-n1-0", memory=40960, model="NVIDIA A100"),
        Card(index=1, uuid="GPU-n1-1", memory=16384, healthy=False, reason="XID 79"),
    ]
    cluster = inspected(
        node("n1", cards=cards, address="10.0.0.1"),
        node("old", cards=[15], classic=True),
        pod("a", memory=3000, on="n1", cards=[cards[0]]),
    )
    assert wide(cluster, used={("n1", "GPU-n1-0"): 1.5 * 2**30}) == text(
        """
        NODE  IPADDRESS  GPU  MODEL        UUID      HEALTH     PODS  SLOTS(Used/Total)  ALLOCATED  TOTAL  FREE   IN USE  UNIT
        n1    10.0.0.1   0    NVIDIA A100  GPU-n1-0  Healthy    1     1/32               3000       40960  37960  1536    MiB
        n1    10.0.0.1   1    -            GPU-n1-1  Unhealthy  0     0/32               0          16384  0      -       MiB
        old   unknown    0    -            -         Healthy    0     -                  0          15     15     -       MiB

        Allocated/Total GPU Memory In Cluster:
        3000/57359 (5%)

        UNHEALTHY CARD OF  GPU  REASON
        n1                 1    XID 79
        """  # noqa: E501
    )


def test_why_a_pod_waits_is_told_apart() -> None:
    many = [
        pod(f"p{number:02}", memory=200 + number, created=f"2026-01-01T00:{number:02}:00Z")
        for number in range(17)
    ]
    cluster = inspected(
        node("n1", cards=[100]),
        pod("fits", memory=50, created="2025-01-01T00:00:00Z"),
        pod("odd", memory=5, slots=2, created="2025-01-01T00:00:01Z"),
        *many,
    )
    lines = wide(cluster, used={}).splitlines()
    assert any(
        line.startswith("fits ") and line.endswith("1 node has room, see the pod's events") for line in lines
    )
    assert any(line.startswith("odd ") and "never fits: container 'main'" in line for line in lines)
    assert lines[-1].endswith("not looked into: too many different requests wait")
    alone = wide(inspected(pod("a", memory=1)), used={})
    assert alone.splitlines()[-1].endswith("no node shares GPU cards")
