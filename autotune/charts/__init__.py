"""Draws a study's charts as SVG text, for the web page and the report; pure, without own scripts or styles."""

from autotune.charts.chart import Chart, Mark
from autotune.charts.svg import Svg
