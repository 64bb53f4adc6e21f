"""Memory over time as a chart: true to its points, under its limit, on its phases, and harmless."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from autotune.charts.memory_dots import Capacity
from autotune.charts.memory_time import MOST_ROWS, bands, over_time
from autotune.documents.memory_timeline import MOST_POINTS, MemoryTimeline, Point
from autotune.domain import Pool
from tests.support import factories as f

EVIL = "<script>alert('&\"x')</script>"
HOST = Capacity(Pool.HOST, 6 * f.GIB)
DEVICE = Capacity(Pool.DEVICE, 80 * f.GIB)


def on_gpu() -> MemoryTimeline:
    points = (f.point(0.0, f.GIB, "load", -1), f.point(5.0, 60 * f.GIB, "update", 0))
    return replace(f.timeline(), device=points)


def test_it_says_its_peak_with_its_second_and_phase_and_the_share_of_the_limit() -> None:
    chart = over_time(f.timeline(), HOST)
    assert chart.says == "The process tree held most after 4.0 s, in update of cycle 0: 3.00 GiB, 50 % of the limit."
    assert "of the limit" not in over_time(f.timeline(), Capacity(Pool.HOST, None)).says


def test_it_is_whole_svg_with_its_words_and_a_table() -> None:
    for chart in (over_time(f.timeline(), HOST), over_time(on_gpu(), DEVICE)):
        root = ET.fromstring(chart.drawing)  # noqa: S314 - our own
        assert root.get("aria-label") == chart.says
        assert " style=" not in chart.drawing
        assert all(len(row) == len(chart.heads) for row in chart.rows)
        for element in root.iter():
            for key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy"):
                assert -10 <= float(element.get(key, 0)) <= 900
            assert float(element.get("width", 1)) >= 0


def test_the_limit_is_a_line_and_named_by_whose_it_is() -> None:
    def limit(timeline: MemoryTimeline, capacity: Capacity) -> list[str]:
        chart = over_time(timeline, capacity)
        drawn = 'class="capacity"' in chart.drawing
        named = [mark.words for mark in chart.legend if mark.style == "capacity"]
        assert drawn is bool(named)
        return named

    assert limit(f.timeline(), HOST) == ["limit of the process tree, 6.00 GiB"]
    assert limit(on_gpu(), DEVICE) == ["memory of a GPU, 80.0 GiB"]
    assert limit(f.timeline(), Capacity(Pool.HOST, None)) == []


def test_phases_are_bands_from_one_first_point_to_the_next() -> None:
    found = bands(f.timeline().host, 7.0)
    assert [(b.start, b.end, b.highest.phase, b.highest.used / f.GIB) for b in found] == [
        (0.0, 1.0, "", 0.25),
        (1.0, 2.0, "load", 1.0),
        (2.0, 3.0, "generate", 1.5),
        (3.0, 6.5, "update", 3.0),
        (6.5, 7.0, "generate", 2.0),
    ]
    chart = over_time(f.timeline(), HOST)
    styles = re.findall(r'class="stage phase-(\w+)"', chart.drawing)
    assert styles == ["other", "other", "generate", "update", "generate"]
    assert "3.0 s to 6.5 s: update of cycle 0, at most 3.00 GiB" in chart.drawing
    assert [mark.words for mark in chart.legend][2:] == ["generate", "update", "start-up"]


def test_both_series_are_lines_that_differ_in_form_and_columns_of_the_table() -> None:
    chart = over_time(on_gpu(), DEVICE)
    assert chart.heads == ("after", "phase", "process tree", "fullest GPU")
    assert ("5.0 s", "update of cycle 0", "", "60.0 GiB") in chart.rows
    assert ("4.0 s", "update of cycle 0", "3.00 GiB", "") in chart.rows
    sentence = "the fullest GPU held most after 5.0 s, in update of cycle 0: 60.0 GiB, 75 % of the limit."
    assert chart.says.endswith(sentence)
    assert [mark.glyph for mark in chart.legend[:2]] == ["━", "┅"]
    assert chart.drawing.count('class="line of-') == 2
    assert over_time(f.timeline(), DEVICE).drawing.count('class="line of-') == 1


def test_nothing_foreign_acts() -> None:
    evil = MemoryTimeline(f.NOW, (f.point(0.0, 1, EVIL), f.point(1.0, 2, "\x1b[2J\u202e", 1)))
    chart = over_time(evil, HOST)
    assert "<script" not in chart.drawing
    assert "\x1b" not in chart.drawing + str(chart.rows)
    assert "\u202e" not in chart.drawing
    ET.fromstring(chart.drawing)  # noqa: S314 - our own
    assert "other" in [mark.words for mark in chart.legend]


@pytest.mark.parametrize("used", [0, 1, 2**53 - 1])
@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_the_smallest_and_the_largest_have_a_place(used: int, seconds: float) -> None:
    for points in ((Point(seconds, used),), (Point(0.0, 0), Point(seconds, used))):
        chart = over_time(MemoryTimeline(f.NOW, points, points), Capacity(Pool.HOST, 1))
        ET.fromstring(chart.drawing)  # noqa: S314 - our own


def test_a_long_attempt_makes_no_large_chart_and_says_what_a_point_is() -> None:
    points = tuple(Point(16.0 * n, n * f.GIB, ("generate", "update")[n % 2], n) for n in range(MOST_POINTS))
    chart = over_time(MemoryTimeline(f.NOW, points, points), HOST)
    assert len(chart.drawing) < 120_000
    assert len(chart.rows) <= 2 * MOST_ROWS
    assert "A point is the highest of about 16 s" in chart.note
    assert any(row[2] == "299 GiB" for row in chart.rows), "the highest is in the table"
    assert over_time(MemoryTimeline(f.NOW, tuple(Point(0.1 * n, n) for n in range(9))), HOST).note == ""


@pytest.mark.parametrize("timeline", [None, MemoryTimeline(f.NOW, ())])
def test_without_points_it_says_why_it_is_empty(timeline: MemoryTimeline | None) -> None:
    chart = over_time(timeline, HOST)
    assert (chart.drawing, chart.rows) == ("", ())
    assert len(chart.note) > 10
