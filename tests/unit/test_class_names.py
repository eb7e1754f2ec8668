"""One name, one thing: no class name is defined in three modules of the product, and modules do not import in circles."""

import ast
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AT_MOST = 2


@pytest.fixture(scope="module")
def modules():
    """The product's modules, parsed: 190 MB, which no other test carries along."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
        for top in ("rankcore", "executors")
        for path in sorted((ROOT / top).rglob("*.py"))
    }


def homes_of_names(modules):
    """Which modules define a class of a name."""
    found = defaultdict(set)
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(module)
    return found


def imported_when_loaded(body):
    """Import statements that run when their module is loaded: none in functions, and none for type checkers alone."""
    for node in body:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield node
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=other):
                yield from imported_when_loaded(other)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                pass
            case _:
                inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt | ast.ExceptHandler)]
                yield from imported_when_loaded(inner)


def needed(modules, module):
    """The modules of ours that a module names in its imports."""
    for node in imported_when_loaded(modules[module].body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in inside]
        yield from (name for name in names if name in modules and name != module)


def a_circle(modules):
    """Modules that import each other in this order, the first again at the end; None: there is no such circle."""
    done, path = set(), []

    def visit(module):
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return None
        path.append(module)
        found = next((circle for name in sorted(set(needed(modules, module))) if (circle := visit(name))), None)
        path.pop()
        done.add(module)
        return found

    return next((circle for module in modules if (circle := visit(module))), None)


def test_no_class_name_is_defined_in_three_modules(modules):
    often = {name: sorted(homes) for name, homes in homes_of_names(modules).items() if len(homes) > AT_MOST}
    assert often == {}, "give the new one a name of its own"


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("rankcore.testing.model", "World", "RankWorld"),
        ("rankcore.testing.model_routing", "Bounds", "RoutingBounds"),
        ("rankcore.testing.model_residency", "World", "ResidencyWorld"),
    ],
)
def test_an_old_name_is_the_new_one_and_a_warning_says_so(module, old, new):
    home = import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{module}.{old} goes in the next release: use {new}"):
        assert getattr(home, old) is getattr(home, new)
    with pytest.raises(AttributeError, match="has no attribute 'Wrold'"):
        home.Wrold  # noqa: B018


def test_no_modules_import_each_other_in_a_circle(modules):
    assert a_circle(modules) is None


@pytest.mark.parametrize(
    ("sources", "circle"),
    [
        pytest.param(("import a.c", "", "from a import b"), ["a.b", "a.c", "a.b"], id="two"),
        pytest.param(("from a.c import X", "import a.b"), ["a.b", "a.c", "a.b"], id="a name of a module"),
        pytest.param(
            ("try:\n    import a.c\nexcept ImportError:\n    pass", "class X:\n    import a.b"),
            ["a.b", "a.c", "a.b"],
            id="inside",
        ),
        pytest.param(("def f():\n    import a.c", "import a.b"), None, id="in a function"),
        pytest.param(("if TYPE_CHECKING:\n    import a.c", "import a.b"), None, id="for type checkers"),
        pytest.param(
            ("if TYPE_CHECKING:\n    pass\nelse:\n    import a.c", "import a.b"), ["a.b", "a.c", "a.b"], id="for others"
        ),
    ],
)
def test_circles_are_found(sources, circle):
    names = ("a.b", "a.c") if len(sources) == 2 else ("a.b", "a.x", "a.c")
    assert a_circle({name: ast.parse(source) for name, source in zip(names, sources, strict=True)}) == circle


def test_names_of_classes_are_found_wherever_they_stand():
    sources = {"a": "class X: ...", "b": "def f():\n    class X: ...", "c": "class Y:\n    class X: ..."}
    assert homes_of_names({name: ast.parse(source) for name, source in sources.items()})["X"] == {"a", "b", "c"}
