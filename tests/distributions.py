"""Other distributions, as pip would leave them in a folder of sys.path: modules, and a dist-info that names their executors."""

PLUGIN = """
import msgspec
from executors.plugin import API, ExecutorPlugin

class Options(msgspec.Struct, frozen=True, kw_only=True):
    partition: str = "all"
    poll_s: float = 1.0
    nodes: tuple[str, ...] = ()

PLUGIN = ExecutorPlugin(api={api}, options=Options, check=lambda options: {check!r}, open=lambda *_: None)
"""


def install(site, name, version="0.3", executors=None, modules=None):
    """A distribution in a folder."""
    site.mkdir(exist_ok=True)
    for module, text in (modules or {}).items():
        (site / f"{module}.py").write_text(text)
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{each} = {value}" for each, value in (executors or {}).items()]
    (info / "entry_points.txt").write_text("\n".join(["[rankcore.executors]", *lines, ""]))


def plugin(api=1, check=None):
    """The text of a module with a plugin of nothing."""
    return PLUGIN.format(api=api, check=check)
