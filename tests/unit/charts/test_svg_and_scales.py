"""The ground the charts stand on: nothing foreign acts, and every value has a place inside the frame."""

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.charts.chart import drawing
from autotune.charts.scales import Bands, Scale, linear
from autotune.charts.svg import LONGEST, Svg, label, linked, number, path, tag

EVIL = "</text><script>alert(1)</script> \" ' & \x1b[31m \u202e \x00"
AMOUNTS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12)


@given(st.text() | st.just(EVIL), st.text() | st.just(EVIL))
def test_whatever_is_written_comes_out_as_text(words: str, other: str) -> None:
    made = drawing(10.0, [linked(label(1, 2, words), "/x?a=1&b=2", other)], other, "x")
    if all(ord(c) >= 32 and not 0xD800 <= ord(c) <= 0xDFFF and c not in "\ufffe\uffff" for c in other):
        root = ET.fromstring(made)  # noqa: S314 - our own
        assert {element.tag for element in root.iter()} <= {"svg", "a", "g", "title", "text"}
    assert "<script" not in made
    assert "\x1b" not in made
    assert "\u202e" not in label(1, 2, words)


def test_a_long_name_is_cut() -> None:
    assert len(label(0, 0, "x" * 5000)) < LONGEST + 50


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_has_no_place_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="no place"):
        number(value)
    with pytest.raises(ValueError, match="no place"):
        path([(0.0, value)])


@given(st.floats(-1e6, 1e6))
def test_a_coordinate_is_short_and_near(value: float) -> None:
    assert float(number(value)) == pytest.approx(value, abs=0.051)
    assert number(value) != "-0"
    assert "e" not in number(value)


def test_markup_is_left_alone_and_attributes_are_escaped() -> None:
    assert tag("g", Svg("<b/>"), "<b/>") == "<g><b/>&lt;b/&gt;</g>"
    assert tag("g", class_='a"b', x=0, hidden=None, y="") == '<g class="a&quot;b" x="0"/>'
    assert Svg("<b/>").__html__() == "<b/>"


@given(st.lists(AMOUNTS, max_size=20), st.booleans())
def test_every_value_lies_on_the_scale(values: list[float], zero: bool) -> None:
    scale = linear(values, 10.0, 300.0, zero=zero)
    for value in values:
        assert 10.0 - 1e-6 <= scale.at(value) <= 300.0 + 1e-6
    for tick in scale.ticks():
        assert scale.low - 1e-6 * abs(scale.low) <= tick <= scale.high + 1e-6 * abs(scale.high)
    assert len(scale.ticks()) <= 41


def test_ticks_are_round() -> None:
    assert linear([0.0, 47.0], 0, 1).ticks() == (0.0, 10.0, 20.0, 30.0, 40.0)
    assert Scale(0.0, 10.0, 0.0, 100.0).at(-5.0) == 0.0


@given(st.integers(1, 100))
def test_bands_share_the_room(count: int) -> None:
    bands = Bands(count, 300.0, 20.0)
    centres = [bands.centre(i) for i in range(count)]
    assert centres == sorted(centres, reverse=True)
    assert 20.0 < centres[-1] <= centres[0] < 300.0
