"""A study's charts as SVG text, for the page and the report alike; pure, without scripts or styles of their own."""

from autotune.charts.chart import Chart, Mark
from autotune.charts.svg import Svg
