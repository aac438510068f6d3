"""The measured cost curve and what it says about budgets."""

import pytest
from tiny_models import tiny_engine

from recap_engine.stepcost import NODE_OVERHEAD_S, SIZES, StepCost


def test_samples_become_a_rising_interpolated_curve():
    cost = StepCost.from_samples({0: [1.0, 9.0, 1.0], 2: [0.5, 8.0, 0.5], 4: [3.0, 27.0, 4.0]})  # the second was slow
    assert cost.most_nodes == 4
    assert cost.seconds == pytest.approx((1.0, 1.0, 1.0, 2.0, 3.0), abs=5 * NODE_OVERHEAD_S)
    assert list(cost.seconds) == sorted(cost.seconds)


def test_slopes_are_the_cheapest_way_on():
    cost = StepCost((1.0, 3.0, 3.0, 4.0))
    assert cost.slopes == pytest.approx((1.0, 0.0, 1.0))
    assert StepCost.free(3).slopes == (0.0, 0.0, 0.0)
    assert StepCost.free(0).most_nodes == 0


def test_the_curve_is_measured_once_and_kept():
    engine = tiny_engine("qwen3_vl")
    cost = engine.step_cost
    assert cost is engine.step_cost
    assert cost.most_nodes == SIZES[-1]
    assert all(second > 0 for second in cost.seconds)
    assert list(cost.seconds) == sorted(cost.seconds)
