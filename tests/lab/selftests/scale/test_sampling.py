"""Whether a value grows."""

from __future__ import annotations

import random

import pytest

from tests.support.sampling import slope

TIMES = [5.0 * number for number in range(240)]


def test_noise_is_flat_and_a_leak_is_not() -> None:
    dice = random.Random(7)
    noise = [100 + dice.gauss(0, 3) for _ in TIMES]
    leak = [value + at / 100 for at, value in zip(TIMES, noise, strict=True)]  # 12 in the whole time
    assert slope(TIMES, noise).is_flat(1.0)
    grown = slope(TIMES, leak)
    assert not grown.is_flat(3.0)
    assert grown.growth == pytest.approx(12, abs=2)
    assert grown.is_flat(15.0), "so much is allowed"


def test_a_wave_that_ends_high_is_no_proof_of_growth() -> None:
    wave = [100.0 + 20 * (number // 60 % 2) for number in range(len(TIMES))]
    assert slope(TIMES, wave).is_flat(3.0)


def test_a_few_samples_are_no_proof() -> None:
    with pytest.raises(ValueError, match="23 samples are too few, 24 are needed"):
        slope(TIMES[:23], [1.0] * 23)
