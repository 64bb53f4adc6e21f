"""What the page's benchmark says of its figures."""

import pytest

from benchmarks.page import Seen, table


@pytest.mark.parametrize(
    ("worst", "heaviest", "said"),
    [
        (1.0, 500_000, "first paint: met; 500 kB: met"),
        (1.001, 500_000, "first paint: missed; 500 kB: met"),
        (0.2, 500_001, "first paint: met; 500 kB: missed"),
    ],
)
def test_one_slow_or_heavy_view_of_any_page_misses_the_target(worst: float, heaviest: int, said: str) -> None:
    found = {"study": [Seen(0.1, 1000), Seen(worst, 1000), Seen(0.3, 1000)], "why": [Seen(0.1, heaviest)]}
    text = table(10_000, {"why": [Seen(4.0, 1000), Seen(0.2, 1000)]}, found)
    assert said in text
    assert "first page of a server, why: 4.0 s asked at once, 0.2 s 10 s after its start" in text, "told, and no target"


def test_a_page_is_told_by_its_median_and_its_worst() -> None:
    text = table(10, {}, {"study": [Seen(0.1, 1000), Seen(0.9, 2000), Seen(0.3, 1000)]})
    assert "| study | 300 | 900 | 2 | 3 |" in text
