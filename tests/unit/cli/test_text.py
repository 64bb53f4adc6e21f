import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from autotune.cli.screens.text import bar, fit, stacked
from autotune.wording.numbers import cells_for, rate, ratio_words, signed_percent
from autotune.wording.text import brief, changes, clean, clean_line, differing, knob_value, short_name
from tests.support import factories
from tests.support.imports import of

HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;new title\x07after",
    "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;cm0gLXJmIC8=\x07",
    "\x1bPq#0\x1b\\text",
    "\x9b2Jcleared",
    "\x1b[2J\x1b[H",
    "a\x08\x08b\x00c\x7f",
    "\u202eevil\u2066",
    "\x1b",
    "\x1b[",
    "\x1b]never ended",
    "\ud800",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_hostile_reaches_the_terminal(text: str) -> None:
    safe = clean(text)
    assert all(unicodedata.category(c) not in ("Cc", "Cs") for c in safe)
    assert not set(safe) & set("\x1b\x9b\u202e\u2066")


def test_the_words_around_escapes_stay() -> None:
    assert clean("\x1b[1;31mCUDA\x1b[0m out of\tmemory\nat step 3") == "CUDA out of memory at step 3"
    assert clean("\x1b]never ended") == "never ended"


def test_a_redrawn_progress_bar_shows_its_last_state() -> None:
    assert clean_line("10%\r50%\r100%") == "100%"
    assert clean_line("done\r") == "done"


@given(st.text())
def test_cleaning_is_total_idempotent_and_harmless(text: str) -> None:
    once = clean(text)
    assert clean(once) == once
    assert all(unicodedata.category(c) not in ("Cc", "Cs") for c in once)


@given(st.text(), st.integers(0, 60))
def test_fit_never_exceeds_its_width(text: str, width: int) -> None:
    assert cell_len(fit(text, width)) <= width


def test_wide_characters_count_double() -> None:
    assert cell_len(fit("模型" * 20, 11)) <= 11
    assert fit("short", 11) == "short"


@pytest.mark.parametrize(("value", "text"), of("rates_have_four_digits"))
def test_rates_have_four_digits(value: Any, text: str) -> None:
    assert rate(value) == text


def test_percentages_carry_their_sign() -> None:
    assert signed_percent(0.4) == "+40.0 %"
    assert signed_percent(-0.051) == "-5.1 %"
    assert signed_percent(-1e-9) == "+0.0 %"
    assert signed_percent(float("nan")) == "unknown"


@pytest.mark.parametrize(("interval", "words"), of("an_interval_has_two_digits_of_its_half_width"))
def test_a_figure_has_the_digits_that_its_interval_supports(interval: Any, words: str) -> None:
    show = ratio_words if len(words.split()) > 3 else rate
    assert show(*interval) == words


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=8), st.integers(0, 60))
def test_bar_cells_fill_the_bar_exactly(shares: Any, width: int) -> None:
    cells = cells_for(shares, width)
    assert all(c >= 0 for c in cells)
    possible = width > 0 and any(s > 0 and s != float("inf") for s in shares)
    assert sum(cells) == (width if possible else 0)


def test_bar_cells_are_proportional() -> None:
    assert cells_for([0.5, 0.25, 0.25], 8) == (4, 2, 2)
    assert cells_for([2, 0, 1], 3) == (2, 0, 1)


@given(st.floats(allow_nan=True), st.integers(0, 40))
def test_a_plain_bar_has_its_width(share: Any, width: int) -> None:
    assert len(bar(share, width)) == width


def test_stacked_bar_names_each_phase_by_a_letter() -> None:
    text = stacked({"update": 0.4, "generate": 0.5, "idle": 0.1, "new\x1b[31m": 0.0}, 10).plain
    assert text == "GGGGGUUUU."


def test_only_the_knobs_that_differ_are_shown_in_a_fixed_order() -> None:
    first = factories.configuration()
    second = factories.configuration(gradient_checkpointing=False, micro_batch_size=4, gradient_accumulation_steps=2)
    assert differing([first, second]) == ("micro_batch_size", "gradient_checkpointing", "gradient_accumulation_steps")
    assert differing([first, first]) == ()
    assert differing([]) == ()


def test_a_switch_and_a_number_are_told_apart() -> None:
    assert differing([factories.configuration(logprob_rows=1), factories.configuration(logprob_rows=True)])


def test_a_knob_only_one_sets_differs() -> None:
    assert differing([factories.configuration(), factories.configuration(zero_stage=2)]) == ("zero_stage",)


def test_changes_read_from_the_baseline_to_the_new_value() -> None:
    base = factories.configuration()
    assert changes(base.with_(gradient_checkpointing=False), base) == (("gradient_checkpointing", "on", "off"),)
    assert brief(base.with_(micro_batch_size=4, precision="bf16"), base) == "micro_batch_size 4, precision bf16"
    assert brief(base, base) == "as the baseline"


def test_values_and_names_are_short_and_safe() -> None:
    assert knob_value(True) == "on"
    assert knob_value(0.30000000000000004) == "0.3"
    assert knob_value("a\x1b[31mb") == "ab"
    assert knob_value(None) == "-"
    assert short_name("some_unknown_knob") == "sounkn"
