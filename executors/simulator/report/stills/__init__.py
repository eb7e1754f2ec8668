"""Pictures of runs that stand still: SVG files for pages without scripts, in the colours and words of the report."""

from executors.simulator.report.stills.charts import render_charts
from executors.simulator.report.stills.curves import NodesDown, Running, Waiting
from executors.simulator.report.stills.lanes import RankLanes
from executors.simulator.report.stills.picture import render_still

__all__ = ["NodesDown", "RankLanes", "Running", "Waiting", "render_charts", "render_still"]
