"""Names of a mixture: of its datasets, and the labels and classes of each in terms of the whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ...pipeline.dataset.index import Index
from ...pipeline.dataset.schema import real_class
from ...pipeline.dataset.stores.address import is_address, without_credentials
from ...pipeline.errors import UsageError

Rename: TypeAlias = Mapping[str, Mapping[str, Mapping[str, str]]]
"""For a dataset and a column, what its names are called in the mixture: {"dfdc": {"label": {"1": "fake"}}}."""

ID_COLUMNS = ("video_id", "source_id", "identity")
"""Columns in which two datasets may use one name for two things."""

_NOT_RENAMED = (*ID_COLUMNS, "file", "split")
_FAKE = "fake"  # 1 in every mixture that has a real class, which is 0, as in the published sets


def is_several(datasets: Any) -> bool:
    """Whether the loader's first argument is a mixture: a list of folders, or folders by name."""
    return isinstance(datasets, (list, tuple, Mapping))


def folders_by_name(datasets: Sequence[Any] | Mapping[str, Any]) -> dict[str, str | Path]:
    """The folders, and addresses, of a mixture by the names of its datasets: their own last part where none is given.

    Raises `UsageError` on what is no folder, on a name with "/", where two have one name, or one folder has two.
    """
    items: list[tuple[Any, Any]]
    if isinstance(datasets, Mapping):
        items = list(datasets.items())
    else:
        items = [(Path(out).absolute().name if _is_path(out) else "", out) for out in datasets]
    if not items:
        raise UsageError(f"dataset={datasets!r}: must name a folder at least; try ['ffpp', 'dfdc']")
    folders: dict[str, str | Path] = {}
    for name, out in items:
        if not isinstance(name, str) or (not name and isinstance(datasets, Mapping)):
            raise UsageError(f"dataset: {name!r}, the name of {out!r} in a mixture: must be a text, such as 'ffpp'")
        if "/" in name:  # names of folders have none
            raise UsageError(
                f"dataset: {name!r}, the name of {out!r} in a mixture: must not contain '/', which ends it in ids: "
                f"{'ff/c23/x'!r} may be a video of 'ff' or of 'ff/c23'; try {name.replace('/', '-')!r}"
            )
        if not _is_path(out):
            raise UsageError(
                f"dataset: {out!r} in a mixture: must be a folder that `facefeed precompute` made; split, filters and "
                "transforms are the loader's, for all of them"
            )
        if name in folders:
            first, second = without_credentials(folders[name]), without_credentials(out)
            raise UsageError(
                f"dataset: {first} and {second} are both called {name!r}; name them, "
                f"{{'first': {first!r}, 'second': {second!r}}}"
            )
        folders[name] = out if is_address(out) else Path(out)
    _refuse_repeated(folders)
    return folders


def _refuse_repeated(folders: Mapping[str, str | Path]) -> None:
    """Rows of a dataset that is given twice would be drawn as those of two, and pass for other videos."""
    names: dict[str, str] = {}
    for name, out in folders.items():
        identity = str(out).rstrip("/") if is_address(out) else os.path.realpath(out)
        if identity in names:
            raise UsageError(
                f"dataset: {names[identity]!r} and {name!r} are the same dataset, whose rows would be drawn twice; "
                "give it once, and weights= where it should be drawn more often"
            )
        names[identity] = name


def _is_path(out: Any) -> bool:
    return isinstance(out, (str, os.PathLike)) and bool(os.fspath(out))


def check_rename(rename: Any, indexes: Mapping[str, Index]) -> Rename:
    """Returns the `rename` argument; raises `UsageError` where it names what the datasets, by name, do not have."""
    if rename is None:
        return {}
    form = "must be like {'dfdc': {'label': {'1': 'fake'}}}: for a dataset and a column, its names and the mixture's"
    if not _is_mapping_of_mappings(rename):
        raise UsageError(f"rename={rename!r}: {form}")
    for dataset, columns in rename.items():
        if dataset not in indexes:
            raise UsageError(f"rename: no dataset is called {dataset!r}; there are {', '.join(indexes)}")
        index = indexes[dataset]
        allowed = ["label", *(name for name in index.categorical_columns if name not in _NOT_RENAMED)]
        for column, names in columns.items():
            if column not in allowed:
                raise UsageError(f"rename: {dataset}: {column!r}: must be {', '.join(allowed[:-1])} or {allowed[-1]}")
            own = index.labels if column == "label" else index.categories(column)
            for name, new in names.items():
                if name not in own:
                    raise UsageError(
                        f"rename: {dataset} ({index.where}) has no {column} {name!r}; it has {', '.join(own) or 'none'}"
                    )
                if not isinstance(new, str) or not new:
                    raise UsageError(f"rename: {dataset}: {column}: {name!r} -> {new!r}: must be a name")
    return rename  # type: ignore[no-any-return]


def _is_mapping_of_mappings(rename: Any) -> bool:
    return isinstance(rename, Mapping) and all(
        isinstance(columns, Mapping) and all(isinstance(names, Mapping) for names in columns.values())
        for columns in rename.values()
    )


def merged_labels(labels: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The labels of a mixture, of those of its datasets by name: the real class is 0, fake 1.

    Others follow as they first occur, and so do all of them where no class is the real one, see `real_class`.
    Raises `UsageError` where names differ by upper and lower case alone.
    """
    found: dict[str, tuple[str, str]] = {}  # label and dataset by its lower case
    for dataset, names in labels.items():
        for name in names:
            known, first = found.setdefault(name.lower(), (name, dataset))
            if known != name:
                raise UsageError(
                    f"labels: {dataset} has {name!r} and {first} has {known!r}; if they are the same, give "
                    f"rename={{{dataset!r}: {{'label': {{{name!r}: {known!r}}}}}}}"
                )
    if (real := real_class([*found])) is None:
        return tuple(name for name, _ in found.values())
    first_labels = [found.pop(name)[0] for name in ([*found][real], _FAKE) if name in found]
    return (*first_labels, *(name for name, _ in found.values()))
