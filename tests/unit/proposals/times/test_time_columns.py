"""Which columns are made of what was measured, and when a pair of knobs gets one."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.proposals.forecasts import Column
from autotune.proposals.times.columns import CHOICE_SD, SLOPE_SD, apart, data_of, layout_of, with_pair
from autotune.proposals.times.features import OFF, coded
from autotune.proposals.times.learning import _best
from autotune.proposals.times.regression import Neighbours

YES, NO = coded(True), coded(False)
NEAR = Neighbours()


def rows(count: int, seed: int) -> dict[str, Column]:
    draw = np.random.default_rng(seed)
    return {
        "micro_batch_size": draw.integers(0, 4, count).astype(float),
        "gradient_checkpointing": draw.choice([YES, NO], count),
        "attn_implementation": draw.choice([coded("sdpa"), coded("eager")], count),
        "optimizer": np.full(count, coded("adamw_torch")),
    }


def measured(own: dict[str, Column], together: float, seed: int) -> Column:
    """Additive effects, and one of two knobs together."""
    saved, eager = own["gradient_checkpointing"] == YES, own["attn_implementation"] == coded("eager")
    noise = np.random.default_rng(seed + 1).normal(0.0, 0.02, len(saved))
    found: Column = 0.1 * own["micro_batch_size"] + 0.2 * saved - 0.3 * eager + together * (saved & eager) + noise
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [12, 40])
def test_a_pair_is_worth_its_columns_only_where_the_measurements_ask_for_it(seed: int, count: int) -> None:
    own = rows(count, seed)
    layout = layout_of(own, 1.0)
    for together in (0.0, 0.6):
        values, noise = measured(own, together, seed), np.full(count, 0.02**2)
        posterior, _ = _best(layout, data_of(layout, own, values, noise, NEAR))
        found = with_pair(layout, posterior)
        assert found is not None
        more, price = found
        other, _ = _best(more, data_of(more, own, values, noise, NEAR))
        if together == 0.0:
            assert other.evidence < posterior.evidence + price
        elif count == 40:
            knobs = {layout.terms[place].knob for pair in more.pairs for place in pair}
            assert knobs == {"gradient_checkpointing", "attn_implementation"}
            assert other.evidence > posterior.evidence + price
            assert len(more.pairs) == 4, "each value of one with each of the other"


def test_few_rows_have_no_pairs() -> None:
    own = rows(7, 0)
    layout = layout_of(own, 1.0)
    posterior, _ = _best(layout, data_of(layout, own, measured(own, 5.0, 0), np.full(7, 1e-6), NEAR))
    assert with_pair(layout, posterior) is None


def test_a_knob_that_never_changed_has_no_column_but_is_remembered() -> None:
    own = rows(20, 0)
    layout = layout_of(own, 1.0)
    assert "optimizer" not in {term.knob for term in layout.terms}
    assert layout.steady == {"optimizer": coded("adamw_torch")}
    assert layout.matrix(own, 20).shape == (20, 1 + 1 + 2 + 2)
    assert np.all(layout.unmeasured(own, 20) == 0.0)
    other = {**own, "optimizer": np.full(20, coded("sgd"))}
    assert np.allclose(layout.unmeasured(other, 20), 2 * CHOICE_SD**2)
    third = {**own, "attn_implementation": np.full(20, coded("flash_attention_2"))}
    assert np.allclose(layout.unmeasured(third, 20), CHOICE_SD**2)


def test_a_number_that_never_changed_is_less_certain_the_further_away() -> None:
    own = {"micro_batch_size": np.full(5, 2.0)}
    layout = layout_of(own, 1.0)
    away = {"micro_batch_size": np.array([2.0, 3.0, 0.0, OFF])}
    assert np.allclose(layout.unmeasured(away, 4), SLOPE_SD**2 * np.array([0.0, 1.0, 4.0, 0.0]))


def test_a_knob_that_rests_moves_nothing() -> None:
    own = {"max_num_seqs": np.array([OFF, 5.0, 7.0, OFF]), "rollout_engine": np.array([NO, YES, YES, NO])}
    layout = layout_of(own, 1.0)
    matrix = layout.matrix(own, 4)
    place = 1 + [term.knob for term in layout.terms].index("max_num_seqs")
    assert matrix[:, place].tolist() == [0.0, -1.0, 1.0, 0.0]
    assert np.all(layout.unmeasured({**own, "max_num_seqs": np.full(4, OFF)}, 4) == 0.0)


def test_nothing_measured_has_the_constant_only() -> None:
    empty = {name: column[:0] for name, column in rows(3, 0).items()}
    layout = layout_of(empty, 0.7)
    assert layout.matrix(rows(3, 0), 3).tolist() == [[1.0]] * 3
    assert layout.variance().tolist() == [pytest.approx(0.49)]
    assert np.all(layout.unmeasured(rows(3, 0), 3) == 0.0)


def test_rows_are_apart_by_the_knobs_in_which_they_differ() -> None:
    own = {"a": np.array([1.0, 1.0, 2.0]), "b": np.array([1.0, OFF, OFF])}
    assert apart(own, own, (3, 3)).tolist() == [[0.0, 0.5, 1.5], [0.5, 0.0, 1.0], [1.5, 1.0, 0.0]]
    assert apart({}, {}, (2, 3)).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("likeness", [0.1, 0.5, 0.95])
def test_likeness_to_that_power_is_a_covariance(likeness: float) -> None:
    """Also with knobs that act only beside some values of another."""
    draw = np.random.default_rng(5)
    parent = draw.integers(0, 2, 200).astype(float)
    own = {"parent": parent} | {str(i): np.where(parent == 1.0, draw.integers(0, 2, 200), OFF) for i in range(6)}
    assert np.linalg.eigvalsh(likeness ** apart(own, own, (200, 200))).min() > -1e-9
