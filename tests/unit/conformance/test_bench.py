"""What the scenarios of a class share goes when they are over."""

from __future__ import annotations

from cloudprovider import ClientBuilder, StopSignal
from cloudprovider.testing.conformance import Feature
from cloudprovider.testing.conformance.bench import Bench
from cloudprovider.testing.conformance.trial import Trial
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from tests.unit.conformance.fakelab import ConsoleLab


def test_what_scenarios_share_is_made_once_and_removed_in_the_end() -> None:
    with FakeCloud(FakeConfig()) as cloud:
        bench = Bench(ConsoleLab(cloud), ~Feature.NONE, lambda: cloud, "fake")
        for _ in range(2):
            with Trial(bench) as trial:
                trial.standing()
            assert len(cloud.console.load_balancers()) == 1
        bench.close()
        assert cloud.console.load_balancers() == []
        assert bench.left_behind == []


def test_a_provider_that_a_scenario_makes_ends_with_it() -> None:
    class Cloud(FakeCloud):
        stop: StopSignal

        def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
            self.stop = stop

    made: list[Cloud] = []

    def make() -> Cloud:
        made.append(Cloud())
        return made[-1]

    with FakeCloud() as cloud:
        bench = Bench(ConsoleLab(cloud), Feature.NONE, make, "fake")
        for _ in range(2):
            with Trial(bench) as trial:
                bench.another_provider()
                trial.in_cluster("another")
                assert not any(one.stop.is_set() for one in (made[0], *made[-2:]))
        assert [one.stop.is_set() for one in made] == [False, True, True, True, True]
        bench.close()
        assert made[0].stop.is_set()
