"""Files that are replaced whole: after a crash of the process or of the machine there is the old text or the new one.

Four steps, each against a loss of its own:

1. The text goes into a file beside the one that it replaces, so that no reader and no crash meets half of it. Its name has the
   number of this process: two writers never write into one file.
2. That file is forced to the disk. Else the name may be there before the text is, and a power failure leaves an empty file.
3. It is renamed, which is atomic within a folder.
4. The folder is forced to the disk. Else a power failure brings the old text back after somebody has acted on the new one.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path


def write_whole(path: Path, text: str, renaming: AbstractContextManager[object] | None = None) -> None:
    """Replace a file, or make it.

    Args:
        path: Of the file; a link is replaced, not followed.
        text: All that it is to hold.
        renaming: Entered for the rename alone, such as a fence; what it raises leaves the file as it was.

    Raises:
        OSError: It cannot be written, and is as it was. `filename` names it.
    """
    with _beside({path: text}) as rename, renaming or nullcontext():
        rename(path)


def write_all(texts: Mapping[Path, str], replaced: Callable[[Path], object]) -> None:
    """Replace several files, or make them: the first is renamed only once all their texts are on the disk.

    Args:
        texts: What each is to hold.
        replaced: Called for each file once it is replaced.

    Raises:
        OSError: One cannot be written; all that `replaced` was not called for are as they were. `filename` names it.
    """
    with _beside(texts) as rename:
        for path in texts:
            rename(path)
            replaced(path)


@contextmanager
def _beside(texts: Mapping[Path, str]) -> Iterator[Callable[[Path], None]]:
    """Steps 1 and 2 for all; gives what does step 3 for one; then 4. What was not renamed is taken away again."""
    beside = {path: path.with_name(f"{path.name}.{os.getpid()}.new") for path in texts}
    path = Path()

    def rename(each: Path) -> None:
        nonlocal path
        path = each
        os.replace(beside[each], each)

    try:
        for path, text in texts.items():
            with beside[path].open("w", encoding="utf-8") as file:
                with suppress(FileNotFoundError):
                    before = path.lstat().st_mode
                    if stat.S_ISREG(before):
                        os.fchmod(file.fileno(), stat.S_IMODE(before))  # nobody more can read it than before
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        yield rename
        for folder in dict.fromkeys(each.parent for each in texts):
            sync_folder(folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        for new in beside.values():
            with suppress(OSError):
                new.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Force to the disk which files a folder has."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
