"""What the contract leaves to a provider: no scenario refuses it, and nothing is left behind in its
cloud."""

from __future__ import annotations

from cloudprovider.testing.conformance import SCENARIOS, Feature, Lab
from cloudprovider.testing.conformance.bench import Bench
from cloudprovider.testing.conformance.trial import Trial
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.fake.config import CAPABILITIES
from tests.unit.conformance.fakelab import ConsoleLab


def cloud() -> FakeCloud:
    return FakeCloud(FakeConfig.model_validate({"capabilities": CAPABILITIES}))


def run(scenario: str, provider: FakeCloud, lab: Lab) -> list[str]:
    """Run the scenario; what it left behind. Raises what it says."""
    bench = Bench(lab, ~Feature.NONE, lambda: provider, "fake")
    try:
        with Trial(bench) as trial:
            SCENARIOS[scenario].function(None, trial)
    finally:
        bench.close()
    return bench.left_behind


def test_a_cluster_may_have_no_address_yet() -> None:
    with cloud() as provider:
        provider.console.add_cluster("young")
        assert provider.clusters().master("young") == ""  # type: ignore[union-attr]
        run("C1", provider, ConsoleLab(provider))
