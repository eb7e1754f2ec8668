"""`rankcore conform`: every case of the kit on a fresh bench, a line for each as it ends."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import attrs
import typer

from executors.cli.asked import BAD_INPUT, asked, end
from executors.plugin import PluginError, checked, named, options_of
from rankcore.errors import RankcoreError

BROKEN = 1
MakeBench = Callable[[Path], AbstractContextManager[Any]]


@attrs.frozen
class WhatCame:
    """What came of a case.

    Attributes:
        word: How it is shown.
        detail: Why it was skipped, or what is broken; "": it was kept.
    """

    word: str
    detail: str = ""


def conform(name: str, expression: str | None, seeds: int, show_list: bool = False, options: Sequence[str] = ()) -> None:
    """Do what `commands/conform.py` says."""
    from rankcore.testing.conformance.kit import tries

    make_bench = asked(lambda: bench_of(name, options))
    meant = asked(lambda: chosen(expression))
    found = [each for each in tries(range(1, seeds + 1)) if meant(each.name)]
    if not found:
        end(f"-k: no case has {expression!r:.80}: `rankcore conform {name} --list` shows them all", BAD_INPUT)
    if show_list:
        return typer.echo("\n".join(each.name for each in found))
    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    begun = time.monotonic()
    for number, each in enumerate(found, 1):
        since = time.monotonic()
        what_came = tried(each.play, make_bench)
        counts[what_came.word] += 1
        skipped[what_came.detail] += what_came.word == "skipped"
        place = f"{number:{len(str(len(found)))}}/{len(found)}"
        shown = f" ({what_came.detail})" if what_came.word == "skipped" else ""
        typer.echo(f"{place}  {what_came.word:7}  {time.monotonic() - since:6.1f} s  {each.name}{shown}")
        if what_came.word == "BROKEN":
            typer.echo("  " + what_came.detail.replace("\n", "\n  "))
    why = "; ".join(f"{reason}: {count}" for reason, count in sorted(skipped.items()) if count)
    typer.echo(
        f"{name}: {counts['kept']} kept, {counts['BROKEN']} broken, {counts['skipped']} skipped{f' ({why})' if why else ''}, "
        f"in {time.monotonic() - begun:.0f} s"
    )
    if counts["BROKEN"]:
        raise typer.Exit(BROKEN)


def bench_of(name: str, said: Sequence[str]) -> MakeBench:
    """The bench that an executor brings, with options NAME=VALUE.

    Raises:
        PluginError: There is no such executor or option, it cannot run here, or it brings none.
    """
    one, plugin = named(name)
    if plugin.bench is None:
        raise PluginError(
            f"executor {one} brings no bench: rankcore/testing/conformance/bench.py says what that is; a plugin names it"
        )
    options, make = options_of(name, plugin, said), plugin.bench
    if (problem := checked(plugin, options)) is not None:
        raise PluginError(f"executor {one} cannot run here: {problem}")

    def fresh(folder: Path) -> AbstractContextManager[Any]:
        try:
            return make(folder, options)
        except (RankcoreError, OSError) as error:
            end(f"executor {one} cannot be tried here: {error}", BAD_INPUT)

    return fresh


def chosen(expression: str | None) -> Callable[[str], bool]:
    """Which names an expression means: words joined by `and`, `or` and `not`, in this order of strength.

    Raises:
        PluginError: It is none.
    """
    if expression is None:
        return lambda name: True
    either: list[list[tuple[bool, str]]] = []
    for part in f" {expression.lower()} ".split(" or "):
        every = []
        for each in f" {part} ".split(" and "):
            words = each.split()
            is_not = words[:1] == ["not"]
            every.append((not is_not, " ".join(words[is_not:])))
            if not every[-1][1] or "(" in part:
                raise PluginError(f"-k: expected words joined by and, or, not, and no brackets, found {expression!r:.80}")
        either.append(every)
    return lambda name: any(all((text in name.lower()) is wanted for wanted, text in every) for every in either)


def tried(play: Callable[[Any], None], make_bench: MakeBench) -> WhatCame:
    """Try a case on a fresh bench."""
    from rankcore.testing.conformance.running import NonconformityError, NotTriedError

    try:
        with tempfile.TemporaryDirectory(prefix="rankcore-conform-") as folder, make_bench(Path(folder)) as bench:
            play(bench)
    except NotTriedError as error:
        return WhatCame("skipped", str(error))
    except NonconformityError as error:
        return WhatCame("BROKEN", str(error))
    except typer.Exit:
        raise  # there can be no bench
    except Exception as error:  # the executor's, or its bench's
        return WhatCame("BROKEN", f"it has failed: {type(error).__name__}: {error}")
    return WhatCame("kept")
