import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cli.screens.quantities import LARGEST, LONGEST_S, parse_duration, parse_size
from autotune.errors import UsageError
from autotune.wording.numbers import format_duration, format_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4h", 14_400),
        ("90m", 5_400),
        ("1h30m", 5_400),
        ("1.5h", 5_400),
        ("2d", 172_800),
        ("45s", 45),
        ("PT4H", 14_400),
        ("PT1H30M", 5_400),
        ("04:00:00", 14_400),
        ("00:00:45", 45),
        ("4 hours", 14_400),
        ("1d4h", 100_800),
        (" 10m ", 600),
    ],
)
def test_every_usual_spelling_of_a_budget(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "240",
        "4",
        "1.5",
        "+4",
        "-4",
        "1e3",
        "0",
        "0h",
        "0s",
        "PT0S",
        "-4h",
        "-PT4H",
        "inf",
        "nan",
        "infh",
        "nanh",
        "4hh",
        "h",
        "four hours",
        "4x",
        "99999999999d",
        "P2Y",
        "1:2:3:4",
        "4h; rm -rf",
        "\x00",
        "4h\x1b[31m",
    ],
)
def test_what_is_no_budget_is_refused_in_one_sentence_that_teaches(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in message
    assert "90m, 4h, 1h30m" in message


def test_two_part_clock_is_refused_because_it_is_ambiguous() -> None:
    with pytest.raises(UsageError, match="hours or minutes"):
        parse_duration("04:00")


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.85, "850 ms"),
        (0.99999, "1.0 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (570, "9 min 30 s"),
        (14_400, "4 h"),
        (3_599.9, "1 h"),
        (86_399, "1 d"),
        (97_200, "1 d 3 h"),
        (-5, "-5.0 s"),
        (math.inf, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("6GiB", 6 * 2**30),
        ("6g", 6 * 2**30),
        ("6 G", 6 * 2**30),
        ("512MiB", 512 * 2**20),
        ("512m", 512 * 2**20),
        ("6GB", 6 * 10**9),
        ("1.5GiB", 3 * 2**29),
        ("0.1TB", 10**11),
        ("100b", 100),
        ("64k", 65_536),
    ],
)
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
