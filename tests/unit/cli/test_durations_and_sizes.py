from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cli.screens.quantities import LARGEST, LONGEST_S, parse_duration, parse_size
from autotune.errors import UsageError
from autotune.wording.numbers import format_duration, format_size
from tests.support.imports import of


@pytest.mark.parametrize(("text", "seconds"), of("every_usual_spelling_of_a_budget"))
def test_every_usual_spelling_of_a_budget(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", of("what_is_no_budget_is_refused_in_one_sentence_that_teaches"))
def test_what_is_no_budget_is_refused_in_one_sentence_that_teaches(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in message
    assert "90m, 4h, 1h30m" in message


@given(st.text(max_size=30))
def test_any_text_is_a_sane_duration_or_a_usage_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except UsageError:
        return
    assert 0 < seconds <= LONGEST_S


@given(st.integers(0, 30), st.integers(0, 23), st.integers(0, 59), st.integers(1, 59))
def test_units_add_up(days: Any, hours: Any, minutes: Any, seconds: float) -> None:
    total = days * 86_400 + hours * 3_600 + minutes * 60 + seconds
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s") == total


@given(st.floats(min_value=1, max_value=LONGEST_S))
def test_a_shown_duration_is_within_its_rounding(seconds: float) -> None:
    words = format_duration(seconds).split()
    units = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86_400}
    shown = sum(float(n) * units[u] for n, u in zip(words[::2], words[1::2], strict=True))
    smallest = units[words[-1]]
    assert abs(shown - seconds) <= max(smallest, 3600 if "d" in words else 60 if "h" in words else 0)


@pytest.mark.parametrize(("seconds", "text"), of("durations_for_people"))
def test_durations_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("text", "size"), of("binary_and_decimal_sizes"))
def test_binary_and_decimal_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "6", "6.5", "GiB", "6iB", "-6GiB", "0g", "0.1b", "9999999TiB", "6GiBB", "inf g", "nan", "٦g"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="6GiB"):
        parse_size(text)


@given(st.text(max_size=20))
def test_any_text_is_a_sane_size_or_a_usage_error(text: str) -> None:
    try:
        size = parse_size(text)
    except UsageError:
        return
    assert 1 <= size <= LARGEST


@given(st.integers(1, LARGEST))
def test_a_shown_size_is_within_half_a_percent(size: int) -> None:
    number, unit = format_size(size).split()
    factor = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}[unit]
    assert float(number) * factor == pytest.approx(size, rel=0.0051)
    assert len(number) <= 4
