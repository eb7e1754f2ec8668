"""The report of a run: one HTML page that needs nothing but itself."""

from executors.simulator.report.page import render_page

__all__ = ["render_page"]
