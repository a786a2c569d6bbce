"""Random lives of a node: pods of every shape, kubelet's order, restarts, outages, lags and failing cards.

Whatever happens, a container's environment names its pod's cards, no card hands out more than it has, a pod
is refused only for a cause, and once things are quiet all records agree.
"""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gpushare.placement import Policy
from tests.deviceplugin.pods import C
from tests.deviceplugin.world import SIZES, World, any_containers

shapes = st.lists(
    st.tuples(
        st.sampled_from([0, 1000, 3000, 6000]),
        st.sampled_from([1, 1, 1, 2]),
        st.sampled_from(["app", "app", "init", "sidecar"]),
    ),
    min_size=1,
    max_size=4,
).map(any_containers)
containers = shapes.filter(
    lambda each: any(one.memory for one in each) and any(one.kind == "app" for one in each)
)
choices = st.integers(min_value=0, max_value=30)


class NodeLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="w-", dir="/tmp")
        self.runner = asyncio.Runner()
        self.world = self.runner.run(World.open(Path(self.folder.name)))

    def teardown(self) -> None:
        try:
            self.runner.run(self.world.quiet())
        finally:
            self.runner.run(self.world.close())
            self.runner.close()
            self.folder.cleanup()

    @rule(name=st.sampled_from("abcdefgh"), shape=containers, policy=st.sampled_from(Policy))
    def bind(self, name: str, shape: list[C], policy: Policy) -> None:
        self.runner.run(self.world.bind(name, *shape, policy=policy))

    @rule(name=st.sampled_from("abcdefgh"), memory=st.sampled_from([1000, 2000]))
    def bind_plain(self, name: str, memory: int) -> None:
        self.runner.run(self.world.bind(name, C(memory=memory), policy=Policy.SPREAD))

    @rule(choice=choices, memory=st.sampled_from([1000, 2000]))
    def replace(self, choice: int, memory: int) -> None:
        self.runner.run(self.world.replace(choice, C(memory=memory)))

    @rule(choice=choices)
    def admit(self, choice: int) -> None:
        self.runner.run(self.world.admit(choice))

    @rule(choice=choices)
    def admit_another(self, choice: int) -> None:
        self.runner.run(self.world.admit(choice))

    @rule(choice=choices)
    def delete(self, choice: int) -> None:
        self.runner.run(self.world.delete(choice))

    @rule(choice=choices, phase=st.sampled_from(["Succeeded", "Failed"]))
    def finish(self, choice: int, phase: str) -> None:
        self.runner.run(self.world.finish(choice, phase=phase))

    @rule(reboot=st.booleans())
    def restart_kubelet(self, reboot: bool) -> None:  # noqa: FBT001
        self.runner.run(self.world.restart_kubelet(reboot=reboot))

    @rule()
    def hang_up(self) -> None:
        self.runner.run(self.world.hang_up())

    @rule()
    def restart_plugin(self) -> None:
        self.runner.run(self.world.restart_plugin())

    @rule()
    def stop_plugin(self) -> None:
        self.runner.run(self.world.stop_plugin())

    @rule(lasting=st.booleans())
    def outage(self, lasting: bool) -> None:  # noqa: FBT001
        self.runner.run(self.world.outage(until_further_notice=lasting))

    @rule()
    def lag(self) -> None:
        self.runner.run(self.world.lag())

    @rule(index=st.integers(min_value=0, max_value=len(SIZES) - 1))
    def turn_card(self, index: int) -> None:
        self.runner.run(self.world.turn_card(index))

    @rule(recreate=st.booleans())
    def reregister(self, recreate: bool) -> None:  # noqa: FBT001
        self.runner.run(self.world.reregister(recreate=recreate))

    @rule(choice=choices)
    def meddle(self, choice: int) -> None:
        self.runner.run(self.world.meddle(choice))

    @invariant()
    def nothing_is_wrong(self) -> None:
        self.world.check()


TestNodeLife = pytest.mark.timeout(240)(NodeLife.TestCase)
TestNodeLife.settings = settings(
    max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
