"""What the scenarios of a class share goes when they are over."""

from __future__ import annotations

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
