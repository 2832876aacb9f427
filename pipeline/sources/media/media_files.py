"""Finds media files below a root, by their names alone; follows links only below the root and allowed folders."""

from __future__ import annotations

import errno
import os
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from ...errors import Reason
from ...video.image_folder import list_frames
from ..folder_names import clip_of_folder
from ..listing import Entry, FoundFile
from .allowed_roots import is_inside, relative_name, resolved_root
from .linked_files import LISTED_ALREADY
from .shared_files import file_id
from .suffixes import is_image, is_media, suffix_of

FRAME_FOLDERS = frozenset(["frames", "images"])
"""Folders of extracted frames in datasets of videos: inputs only where there are no videos."""
MASK_FOLDERS = ("masks", "mask", "masks_videos", "mask_videos")
"""Folders of the masks of fakes: never inputs. Where several lie in one folder, the first that is there is used."""
_MAX_SEARCHED_FOLDERS = 1000
_Link = tuple[str, os.DirEntry[str]]  # its path relative to the root
_NO_SUCH_PATH = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG}
DERIVED_FOLDERS = FRAME_FOLDERS | {"landmarks", *MASK_FOLDERS}
"""Folders of derived files in datasets of videos: never inputs beside the videos themselves."""


class _Names(NamedTuple):
    """Sorted names of what lies directly in a folder: of folders, without hidden ones; of media and all folders."""

    folders: list[str]
    media_and_folders: list[str]


_kept_names: ContextVar[dict[Path, _Names] | None] = ContextVar("_kept_names", default=None)


def find_media(
    root: Path,
    ignored: Counter[str],
    *,
    below: str = "",
    skip: Callable[[str], str | None] | None = None,
    allowed: Sequence[Path] = (),
) -> Iterator[FoundFile]:
    """Yields every media file below `root`/`below` in a stable order; follows links only below `root` and `allowed`.

    Args:
        root: the folder that paths are relative to.
        ignored: counter of files that are no media, by suffix, and of links to folders and files that are listed
            already.
        below: a folder in `root`.
        skip: called with the path of each folder relative to `root`; returns a name under which all of its files are
            counted instead, or None.
        allowed: real paths of further folders that links may lead into.

    """
    roots = (resolved_root(root), *allowed)
    base = f"{root}/"  # joining a Path per folder is slow
    visited: set[tuple[int, int]] = set()
    linked = deque[str]()  # visited after all other folders, so that a folder is listed under its own name
    links: list[_Link] = []  # to files; last of all, so that a file is listed under its own name
    pending = [(below, False)]
    while pending or linked:
        folder, through_link = pending.pop() if pending else (linked.popleft(), True)
        try:
            inode = _inode(base + folder)
            children = _children(base + folder)
        except OSError as error:
            yield FoundFile(printable_name(folder), problem="unreadable", detail=f"folder: {error.strerror}")
            continue
        if inode in visited and through_link:
            ignored["links to folders that are listed already"] += 1
            continue
        visited.add(inode)
        subfolders = []
        children.reverse()
        while children:
            child = children.pop()  # with its status, which is not to be kept of millions in one folder
            relative = f"{folder}/{child.name}" if folder else child.name
            if _is_hidden(child.name):
                continue
            if _is_folder(child) and (not child.is_symlink() or is_inside(child.path, roots)):
                if skip and (name := skip(relative)):
                    ignored[name] += _count_files(child.path)
                elif child.is_symlink():
                    linked.append(relative)
                else:
                    subfolders.append((relative, through_link))
            elif file := _list_file(child, relative, roots, ignored, links):
                yield file
        pending += reversed(subfolders)
    yield from _list_links(links, visited, ignored)


def find_named(root: Path, name: str, allowed: Sequence[Path] = ()) -> FoundFile | None:
    """The file or folder of images that metadata calls `name`; None where there is none.

    Never one outside `root` and `allowed`.
    """
    if "\0" in name or printable_name(name) != name:
        return None  # not a valid file name
    relative = relative_name(root, name)
    path = root / relative
    if not is_inside(path, (resolved_root(root), *allowed)):
        return FoundFile(name, problem="outside_root", detail="metadata names a path outside the source")
    try:
        if path.is_dir() and relative != ".":
            return _stat_frames(root, relative, (resolved_root(root), *allowed))
        if not path.is_file():
            return None
    except OSError as error:  # a name that is too long, a folder without permission
        return FoundFile(relative, problem="unreadable", detail=error.strerror)
    return _stat_file(relative, path.stat)


def first_media_below(folder: Path) -> str | None:
    """Path, relative to `folder`, of a video in it or of a video or image below it; None where none is found.

    For messages: it looks into so many folders only, and not behind links.
    """
    for path, folders, files in islice(os.walk(folder), _MAX_SEARCHED_FOLDERS):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        is_top = path == str(folder)
        media = sorted(
            name for name in files if is_media(name) and not _is_hidden(name) and not (is_top and is_image(name))
        )
        if media:
            return os.path.relpath(os.path.join(path, media[0]), folder)  # noqa: PTH118
    return None


def list_media(root: Path, folder: str) -> list[str]:
    """Sorted paths, relative to `root`, of the media in one folder; empty where it cannot be listed."""
    try:
        return [f"{folder}/{child.name}" for child in _children(root / folder) if is_media(child.name)]
    except OSError:
        return []


def list_folders(root: Path) -> list[str]:
    """Sorted names of the folders directly below `root`, links to folders included, hidden ones left out."""
    return _names_in(root).folders


def listable_folders(root: Path) -> list[str]:
    """Sorted names of the folders directly below `root`; empty where it cannot be listed."""
    try:
        return list_folders(root)
    except OSError:
        return []


def mask_folders(root: Path) -> list[str]:
    """Names of the folders of masks directly below `root`, in the order of `MASK_FOLDERS`, as they are spelt."""
    found = [name for name in listable_folders(root) if name.lower() in MASK_FOLDERS]
    return sorted(found, key=lambda name: MASK_FOLDERS.index(name.lower()))


def ignored_as_mask(path: str) -> str | None:
    """Name under which the files of a folder of masks, or in one, are counted as ignored; None of any other path.

    >>> ignored_as_mask("fake/Masks/033"), ignored_as_mask("fake/033")
    ('in masks/', None)
    """
    return next((f"in {part}/" for part in path.lower().split("/") if part in MASK_FOLDERS), None)


def listable_names(root: Path) -> list[str]:
    """Sorted names of the media and folders directly below `root`; empty where it cannot be listed."""
    try:
        return _names_in(root).media_and_folders
    except OSError:
        return []


@contextmanager
def each_folder_listed_once() -> Iterator[None]:
    """Within it the names in a folder are read once, although all layouts ask for them: a folder can hold millions."""
    token = _kept_names.set({})
    try:
        yield
    finally:
        _kept_names.reset(token)


def _names_in(folder: Path) -> _Names:
    kept = _kept_names.get()
    if kept is not None and folder in kept:
        return kept[folder]
    children = [(child.name, _is_folder(child)) for child in _children(folder)]
    names = _Names(
        [name for name, is_folder in children if is_folder and not _is_hidden(name)],
        [name for name, is_folder in children if is_folder or is_media(name)],
    )
    if kept is not None:
        kept[folder] = names
    return names


def path_exists(path: Path) -> bool:
    """Whether a path exists, as far as this user may see; False for an invalid name. Raises `OSError` on I/O errors."""
    try:
        path.stat()
    except OSError as error:
        if error.errno not in _NO_SUCH_PATH:
            raise
        return False
    except ValueError:  # a null character, or a lone surrogate
        return False
    return True


def printable_name(name: str) -> str:
    """The name with undecodable bytes escaped in hexadecimal; unchanged where it is valid text."""
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a lone surrogate, as JSON can contain
        return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _children(folder: Path | str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as scan:
        return sorted(scan, key=lambda child: child.name)


def _inode(folder: str) -> tuple[int, int]:
    status = os.stat(folder)  # noqa: PTH116 (a Path takes longer than the call)
    return status.st_dev, status.st_ino


def _list_file(
    child: os.DirEntry[str], relative: str, roots: Sequence[Path], ignored: Counter[str], links: list[_Link]
) -> FoundFile | None:
    """The entry of a file, or of a link that leads out; None where it is not listed. Other links go to `links`."""
    if child.is_symlink() and not is_inside(child.path, roots):
        is_listed = is_media(child.name) or _is_folder(child)
        detail = "a link out of the source"
        return FoundFile(printable_name(relative), problem="outside_root", detail=detail) if is_listed else None
    if not is_media(child.name):
        ignored[suffix_of(child.name) or "(no suffix)"] += 1
        return None
    if child.is_symlink():
        links.append((relative, child))
        return None
    return _stat_file(relative, child.stat)


def _list_links(
    links: Iterable[_Link], visited: Container[tuple[int, int]], ignored: Counter[str]
) -> Iterator[FoundFile]:
    """The files that links lead to, by the links' names; not those in `visited` folders, which are listed themselves.

    Of several links to one file the first by name is listed. Links in a folder of frames are listed all or none, since
    a store has one file for equal images: none where all images of the folder are links to what is listed already.
    """
    targets: set[tuple[int, int]] = set()
    is_visited: dict[str, bool] = {}

    def is_listed(link: os.DirEntry[str], target: tuple[int, int]) -> bool:
        if target in targets:
            return True
        path = os.path.realpath(link.path)
        folder, name = os.path.split(path)
        if folder not in is_visited:
            is_visited[folder] = _is_visited(folder, visited)
        # A file whose name cannot be stored is listed as unreadable: a link may be how it is read after all.
        return is_visited[folder] and is_media(name) and name[0] != "." and printable_name(path) == path

    for clip, group in _links_by_clip(links):
        found = []
        for relative, link in group:
            try:
                status = link.stat()
            except OSError:  # reported as that of an input
                yield _stat_file(relative, link.stat)
                continue
            found.append((relative, link, (status.st_dev, status.st_ino)))
        if not all(is_listed(link, target) for _, link, target in found) or (clip and _has_own_image(clip)):
            targets.update(target for _, _, target in found)
            yield from (_stat_file(relative, link.stat) for relative, link, _ in found)
        elif found:
            ignored[LISTED_ALREADY] += len(found)


def _links_by_clip(links: Iterable[_Link]) -> Iterator[tuple[str | None, list[_Link]]]:
    """The links in each folder of frames, with its path, the folders with most links first; the others one by one."""
    by_name: defaultdict[str, list[_Link]] = defaultdict(list)
    for relative, link in links:
        folder = relative.rpartition("/")[0]
        is_frame = is_image(relative) and clip_of_folder(folder) is not None
        by_name[folder if is_frame else relative].append((relative, link))
    for name, group in sorted(by_name.items(), key=lambda each: (-len(each[1]), each[0])):
        relative, link = group[0]
        yield None if relative == name else os.path.dirname(link.path), sorted(group, key=itemgetter(0))  # noqa: PTH120


def _has_own_image(folder: str) -> bool:
    """Whether an image directly in `folder` is no link."""
    try:
        return any(is_image(child.name) and not child.is_symlink() for child in _children(folder))
    except OSError:
        return False


def _is_hidden(name: str) -> bool:
    """Whether no file below a file or folder of this name is an input."""
    return name.startswith(".") or name == "@eaDir"  # Synology's, with a folder of thumbnails for each photo and video


def _is_visited(folder: str, visited: Container[tuple[int, int]]) -> bool:
    try:
        return _inode(folder) in visited
    except OSError:
        return False


def _count_files(folder: str) -> int:
    """Number of files in a folder and below it, without a stat call each: there can be millions of frames."""
    count, pending = 0, [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as scan:
                for child in scan:
                    if child.is_dir(follow_symlinks=False):
                        pending.append(child.path)
                    elif not _is_hidden(child.name):
                        count += 1
        except OSError:  # no permission; the count is informative only
            continue
    return count


def _stat_file(relative: str, stat: Callable[[], os.stat_result]) -> FoundFile:
    name = printable_name(relative)
    try:
        status = stat()
    except OSError as error:
        return FoundFile(name, problem="unreadable", detail=error.strerror)
    problem: Reason | None = None if name == relative else "unreadable"
    detail = "the file's name is not UTF-8; rename it" if problem else None
    return FoundFile(name, status.st_size, status.st_mtime_ns, problem, detail, file_ids=(file_id(status),))


def _stat_frames(root: Path, folder: str, roots: Sequence[Path]) -> FoundFile | None:
    """The images of a folder as one clip; None where it has none. Raises OSError."""
    statuses = [(name, (root / folder / name).stat()) for name in list_frames(root / folder, roots)]
    frames = [(name, status.st_size, status.st_mtime_ns) for name, status in statuses]
    file_ids = array("Q", (file_id(status) for _, status in statuses))  # 8 bytes each: sets have millions of images
    return FoundFile.of_frames(folder, frames, file_ids) if frames else None


def digest_of_images(folder: Path, roots: Sequence[Path]) -> str | None:
    """The `images_digest` that `folder` has now; None where it has no image, or cannot be read."""
    try:
        found = _stat_frames(folder.parent, folder.name, roots)
    except OSError:
        return None
    return None if found is None else found.images_digest


def is_linked_folder(file: FoundFile) -> bool:
    """Whether it stands for a folder that a link out of the source leads to."""
    return file.problem == "outside_root" and not is_media(file.relative)


def entries_of(files: Iterable[FoundFile], entry_of: Callable[[FoundFile], Entry]) -> list[Entry]:
    """The entries of files in order, by `entry_of`; a folder behind a link has a problem, and no metadata."""
    return [Entry.of_file(file) if is_linked_folder(file) else entry_of(file) for file in files]


def _is_folder(child: os.DirEntry[str]) -> bool:
    try:
        return child.is_dir()
    except OSError:  # a loop of links, or a link into a folder without permission
        return False
