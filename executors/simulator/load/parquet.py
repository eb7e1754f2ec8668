"""Rows of Parquet files, a batch at a time, as the texts that the same rows would be in CSV.

Needs `rankcore[parquet]`, which is imported only for such a file.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from executors.simulator.fields import shown
from executors.simulator.load.csvfile import UNPACKED_MAX_BYTES, BadRows, TooManyLinesError, TraceError, refuse
from executors.simulator.regularfile import open_regular

BATCH_ROWS = 65_536


def names_of(path: Path) -> list[str]:
    """What the columns of a file are called.

    Raises:
        TraceError: The file cannot be read, or Parquet cannot be.
    """
    with _opened(path) as file:
        return list(file.schema_arrow.names)


def check_rows(path: Path, most: int) -> None:
    """Refuse a file of too many rows, as its end says.

    Raises:
        TooManyLinesError: It has more than `most`.
    """
    with _opened(path) as file:
        if file.metadata.num_rows > most:
            raise TooManyLinesError(f"{path}: expected at most {most} rows, found more")


def cells(path: Path, columns: Sequence[str], bad: BadRows) -> Iterator[tuple[int, Sequence[str]]]:
    """The cells of the wanted columns of each row, with the number of the row.

    Raises:
        TraceError: The file cannot be read, lacks a column, or Parquet cannot be read.
    """
    with _opened(path) as file:
        for column in columns:
            if column not in file.schema_arrow.names:
                names = shown(",".join(file.schema_arrow.names))
                raise TraceError(f"{path}: expected a column {shown(column)}, found no such column in {names}")
        number = 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(dict.fromkeys(columns))):
            texts = [_texts(path, batch, column) for column in columns]
            for row in zip(*texts, strict=True):
                number += 1
                if None in row:
                    column = columns[row.index(None)]
                    bad.take(TraceError(f"{path}:{number}: {column}: expected a number or a text, found nothing"))
                else:
                    yield number, row


def _texts(path: Path, batch: Any, column: str) -> list[str | None]:
    import pyarrow

    found = batch.column(batch.schema.get_field_index(column))
    try:
        return list(found.cast(pyarrow.string()).to_pylist())
    except pyarrow.ArrowException:
        raise TraceError(f"{path}: {column}: expected numbers, texts or times, found {found.type}") from None


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError:
        problem = "expected .csv or .jsonl, or pyarrow, which is not installed: pip install 'rankcore[parquet]'"
        raise TraceError(f"{path}: {problem}") from None
    try:
        with open_regular(path) as opened, ParquetFile(opened) as file:
            groups = range(file.metadata.num_row_groups)
            if sum(file.metadata.row_group(group).total_byte_size for group in groups) > UNPACKED_MAX_BYTES:
                refuse(path, 1, f"expected at most {UNPACKED_MAX_BYTES:,} bytes unpacked, found more")
            yield file
    except (OSError, pyarrow.ArrowException) as error:
        problem = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise TraceError(f"{path}: cannot be read: {problem}") from None
