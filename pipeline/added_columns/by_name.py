"""Column makers by the name that `facefeed add` takes: "landmarks" or "FILE.py:Class"."""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import UsageError
from ..faces.landmarks.by_name import make_landmarker
from ..user_file import describe_error, run_user_file
from .landmarks import LandmarkColumns
from .maker import GUIDE, LANDMARKS, ColumnMaker


def absolute_source(source: str) -> str:
    """What names the same maker in any working folder."""
    path, _, name = source.rpartition(":")
    return source if source == LANDMARKS else f"{Path(path).resolve()}:{name}"


def load_column_maker(source: str) -> ColumnMaker:
    """The maker "landmarks", or an instance of the class that "FILE.py:Class" names.

    Raises `UsageError` where there is none, or it cannot be made.
    """
    if source == LANDMARKS:
        return LandmarkColumns(make_landmarker("mesh"))
    path, _, name = source.rpartition(":")
    file = Path(path).resolve()
    if file.suffix != ".py" or not name:
        raise UsageError(f"COLUMNS={source!r}: must be landmarks or FILE.py:Class, your own; {GUIDE}")
    if not file.is_file():
        raise UsageError(f"COLUMNS={source!r}: {path} does not exist; name an existing Python file")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))  # for its own imports
    module = run_user_file(file, f"COLUMNS={source!r}")
    maker_class = getattr(module, name, None)
    if not isinstance(maker_class, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and hasattr(value, "compute")]
        hint = f"it has {', '.join(classes)}" if classes else GUIDE
        raise UsageError(f"COLUMNS={source!r}: {path} has no class {name!r}; {hint}")
    try:
        maker: ColumnMaker = maker_class()
    except Exception as error:
        raise UsageError(
            f"COLUMNS={source!r}: cannot be made ({describe_error(error, file)}); its constructor must work without "
            "arguments"
        ) from error
    return maker
