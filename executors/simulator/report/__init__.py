"""Pages about runs, each one HTML file that needs nothing but itself: a run's report, and the charts of a sweep."""

from executors.simulator.report.multiples import SweepCell, render_multiples
from executors.simulator.report.page import render_page

__all__ = ["SweepCell", "render_multiples", "render_page"]
