"""What a page is made of besides words: styles, scripts and data, put into it so that it needs nothing else."""

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from typing import Any

_FOLDER = files("executors.simulator.report") / "assets"


def asset(name: str) -> str:
    """The text of a file that lies in `assets/`."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def document(title: str, *, styles: str, body: str, script: str = "", data: Any = None, may_ask: bool = False) -> str:
    """A whole page that opens from disk, loads nothing, and runs no script but `script`.

    That is enforced: its security policy names the script by its hash and allows no connection, picture or font.

    Args:
        title: In plain text; it is escaped here.
        body: HTML, in which everything that a user wrote has been escaped.
        script: Run once the document is there.
        data: JSON-like, for the script, in the element `run-data`.
        may_ask: Whether the script may connect to the server that the page is of, and to no other.
    """
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    policy += "; connect-src 'self'" if may_ask else ""
    parts = []
    if data is not None:
        parts.append(f'<script type="application/json" id="run-data">{json_in_html(data)}</script>')
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
        parts.append(f"<script>{script}</script>")
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{styles}</style></head><body>",
            body,
            *parts,
            "</body></html>\n",
        )
    )


def json_in_html(data: Any) -> str:
    r"""JSON in which no text can end the element that it stands in: `<`, `>` and `&` are written as `\u003c` and so on."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
