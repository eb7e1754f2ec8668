"""The styles of the page, for light and dark."""

STYLE = """\
:root {
  --paper: #ffffff; --ink: #1c2127; --quiet: #626b76; --line: #d9dee4; --lane: #f1f3f6;
  --bad: #c0392b; --change: #2c6fbb; --controller: #7d5ba6; --hold-l: 72%; --hold-s: 48%; --holder: #1c2127;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16191d; --ink: #e4e8ec; --quiet: #98a2ad; --line: #343b43; --lane: #1f242a;
    --bad: #f07261; --change: #6cabf0; --controller: #b69ae0; --hold-l: 36%; --hold-s: 38%; --holder: #eef1f4;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 20px 48px; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 32px 0 8px; }
p { margin: 2px 0; }
.summary, .rerun, .quiet, figcaption { color: var(--quiet); }
code { font: 13px/1.4 ui-monospace, monospace; background: var(--lane); padding: 2px 5px; border-radius: 4px; }
.broken { margin: 14px 0; padding: 10px 14px; border: 1px solid var(--bad); border-left-width: 5px; color: var(--bad); }
figure { margin: 8px 0 16px; overflow-x: auto; }
figcaption { font-size: 13px; max-width: 900px; }
.swatch { display: inline-block; width: 22px; height: 11px; border: 1px solid var(--bad); vertical-align: -1px;
  background: color-mix(in srgb, var(--bad) 25%, transparent); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; font-weight: normal; padding: 4px 18px 4px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
.figures th { color: var(--quiet); white-space: pre; }
.happened td:nth-child(2) { color: var(--quiet); }
.pin { display: inline-block; min-width: 20px; padding: 0 5px; border-radius: 10px; text-align: center; font-size: 12px;
  color: var(--paper); background: var(--quiet); }
.pin.fault { background: var(--bad); } .pin.change { background: var(--change); }
.pin.controller { background: var(--controller); }
svg.lanes { display: block; width: 100%; min-width: 720px; height: auto; font: 11px system-ui, sans-serif; }
.lanes text { fill: var(--quiet); }
.lanes .wanted { fill: var(--lane); }
.lanes .grid { stroke: var(--line); stroke-width: 1; }
.lanes .tick { text-anchor: middle; }
.lanes .caption, .lanes .rank { text-anchor: end; }
.lanes .hold { fill: hsl(var(--hue) var(--hold-s) var(--hold-l)); }
.lanes .waiting { opacity: 0.4; }
.lanes .holder { fill: var(--holder); pointer-events: none; }
.lanes .gap { fill: var(--bad); fill-opacity: 0.18; stroke: var(--bad); stroke-width: 1; }
.lanes .outage { fill: var(--controller); fill-opacity: 0.22; }
.lanes .mark { --mark: var(--quiet); }
.lanes .mark.fault { --mark: var(--bad); }
.lanes .mark.change { --mark: var(--change); }
.lanes .mark.controller { --mark: var(--controller); }
.lanes .mark line { stroke: var(--mark); stroke-width: 1.2; stroke-dasharray: 4 3; }
.lanes .mark circle { fill: var(--mark); }
.lanes .mark text { fill: var(--paper); text-anchor: middle; font-weight: 600; font-size: 10px; }
"""
