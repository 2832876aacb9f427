"""Layout `ffpp`: FaceForensics++ (Rössler et al. 2019), with FaceShifter and the DeepFakeDetection set.

As the authors' script downloads it (`FfppTree`):

    original_sequences/{youtube,actors}/{raw,c23,c40}/videos/033.mp4, 01__kitchen_pan.mp4
    manipulated_sequences/<method>/{raw,c23,c40}/videos/<target>_<source>.mp4
    manipulated_sequences/<method>/masks/videos/<target>_<source>.mp4           one mask video for all three grades

Copies may lack the levels `youtube`, `c23` and `videos`: original_sequences/c23/033.mp4. The two folders may be called
after the classes: real/033.mp4, fake/<method>/033_097.mp4.

As it is shared elsewhere, on Kaggle above all (`FfppFlat`):

    FaceForensics++_C23/original/033.mp4
    FaceForensics++_C23/<method>/<target>_<source>.mp4

Here, too, the originals may be in `real` or the like.

Beside the folders, or in splits/: {train,val,test}.json, lists of pairs [["720", "672"], ...]. Where there are no
videos, extracted frames are read: `frames/033_097/0001.png` for `videos/033_097.mp4`.

`<target>_<source>` is the target's video with the source's face (Deepfakes, FaceSwap, FaceShifter, DeepFakeDetection),
or with the target's own face moved as the source moves (Face2Face, NeuralTextures). Both people count as being in it.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path, PurePosixPath

from ....console import plural
from ....errors import UsageError
from ...clips.image_sequences import FramePath, path_of_video, video_of_frame
from ...clips.video_or_frames import find_videos_or_frames
from ...folder_names import VIDEO_FOLDERS
from ...listing import Entry, FoundFile, Listing, has_usable_splits
from ...media.media_files import entries_of, find_named, ignored_as_mask, list_media, mask_folders
from ...media.suffixes import is_image
from ..names.flat_frames import FlatFrame, video_of_flat
from ..names.name_matcher import NameMatcher, stem_of
from ..names.spelling import path_as_spelt
from .beside import unread_folders
from .flat import FfppFlat
from .names import SWAPS, VideoName, mentioned_identities
from .splits import OfficialSplits, read_splits
from .tree import FfppTree

FfppFolders = FfppTree | FfppFlat


class FaceForensics:
    """The whole set, or any folder within it: the folders above SRC are taken into account.

    A file in an unknown place or of an unknown name keeps the label of its folder, and its columns stay null; splits
    still keep it together with the people whom its name mentions.
    """

    name = "ffpp"
    needs = "a folder with original_sequences or manipulated_sequences, or with a folder for each method, or one within"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return src.is_dir() and _folders(src) is not None

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the videos, or the extracted frames.

        Raises `UsageError` where the official splits cannot be read, or list a video in two splits, where the folder of
        a method is nearly called as published, or two are of one method, where there are no originals, but a folder
        that may hold them or methods that are uncertain, and where a folder beside the set may hold more of it.
        """
        folders = _folders(src)
        assert folders is not None  # since `fits` is true
        root = folders.root
        inner = "" if root == src else src.absolute().relative_to(root).as_posix()
        _check_folders(folders, is_whole=not inner)
        official = read_splits(root)
        ignored: Counter[str] = Counter()
        files = find_videos_or_frames(
            root, ignored, is_input=folders.is_input, skip=folders.skip, below=inner, allowed=allowed
        )
        named = entries_of(filter(folders.is_input, files), lambda file: _entry(file, folders, official))
        entries = _with_masks_on_disk(_with_originals_on_disk(named, root), root, allowed)
        ignored["media beside the sequences"] += len(files) - len(entries)
        masks = {entry.mask_id for entry in entries if entry.mask_id}
        below = (name for name in masks if not inner or name.startswith(f"{inner}/"))
        ignored -= Counter(filter(None, map(ignored_as_mask, below)))
        ignored[".json"] -= 0 if inner else len(official.files)
        on_disk = NameMatcher.from_paths(_video_of(entry.video_id, folders) for entry in entries)
        missing = on_disk.missing(_expected(entries, folders, official)).values()
        flat = filter(None, (_flat_frame(entry.video_id, folders) for entry in entries))
        unread = () if inner else tuple(unread_folders(root, folders.beside()))
        return Listing(
            layout=self.name, root=root, labels=("real", "fake"), entries=entries,
            missing=sorted(name for name in missing if not inner or name.startswith(f"{inner}/")), ignored=+ignored,
            uses_splits=has_usable_splits(set(official.split_of.values())),
            missing_split_lists=official.missing, split_lists=official.files,
            without_splits=f"take {', '.join(official.files)} away",
            recognised_by=folders.recognised_by, warnings=tuple(_unknown_places(entries, folders)),
            unread_folders=unread, collecting_folders=frozenset(frame.collecting_folder for frame in flat),
        )  # fmt: skip


def _folders(src: Path) -> FfppFolders | None:
    return FfppTree.of(src) or FfppFlat.of(src)


def _check_folders(folders: FfppFolders, *, is_whole: bool) -> None:
    """Raises `UsageError`; `is_whole`: not a part of the set alone, beside which nothing is left out."""
    try:
        folders.check_folders()
        if is_whole:
            folders.refuse_left_out()
    except UsageError as error:
        raise UsageError(f"{error}; if this is no FaceForensics++, read it with --layout folder") from error


def _unknown_places(entries: Iterable[Entry], folders: FfppFolders) -> Iterator[str]:
    """Reports videos whose names are the set's, and whose folders are not: nothing certain follows from the name."""
    clips = (video_of_frame(entry.video_id) for entry in entries if not (entry.problem or entry.identity))
    unknown = sorted({clip for clip in clips if VideoName.parse(PurePosixPath(clip).stem)})
    if unknown:
        are = "is" if len(unknown) == 1 else "are"
        names = (VideoName.parse(PurePosixPath(clip).stem) for clip in unknown)
        has_actors = any(name and name.people == "actors" and not name.source for name in names)
        form = f"{FfppTree.form}, the only form that has originals of actors" if has_actors else folders.form
        yield (
            f"{plural(len(unknown), 'video')} {are} called as those of FaceForensics++, but in folders of which it has "
            f"no such videos ({unknown[0]!r}), so that originals and who is seen are unknown; move them to "
            f"{form}; the folders in brackets may be left out"
        )


def _with_originals_on_disk(entries: list[Entry], root: Path) -> list[Entry]:
    """Replaces each `source_id` by the original's name on disk, also where SRC is only a part of the set."""
    path_of, _ = _paths_on_disk(root, {entry.source_id for entry in entries if entry.source_id}, path_as_spelt)
    return [replace(entry, source_id=path_of[entry.source_id]) if entry.source_id else entry for entry in entries]


def _with_masks_on_disk(entries: list[Entry], root: Path, allowed: Sequence[Path]) -> list[Entry]:
    """Replaces each `mask_id` by the mask's name on disk, or takes it out where there is no mask."""
    path_of, present = _paths_on_disk(root, {entry.mask_id for entry in entries if entry.mask_id}, _masks_as_spelt)

    def with_mask(entry: Entry) -> Entry:
        if entry.mask_id not in present:
            return entry.without_mask()
        mask = find_named(root, path_of[entry.mask_id], allowed)
        return entry.with_mask(mask) if mask else entry.without_mask()

    return [with_mask(entry) for entry in entries]


def _masks_as_spelt(root: Path, published: str) -> str:
    """The folder of a method's masks as it is called on disk: `Deepfakes/mask/videos` for `Deepfakes/masks/videos`."""
    published_method, _, inner = published.partition("/masks")
    method = path_as_spelt(root, published_method)
    return path_as_spelt(root, f"{method}/{next(iter(mask_folders(root / method)), 'masks')}{inner}")


def _paths_on_disk(
    root: Path, names: Set[str], as_spelt: Callable[[Path, str], str]
) -> tuple[dict[str, str], set[str]]:
    """Path of each of `names` with its folders as they are spelt on disk, by `as_spelt`; and those that are there.

    What is not there is looked for with or without the folder `videos`, which a copy may have in a part of its folders.
    """
    path_of, present = _paths_as_spelt(root, names, as_spelt)
    other_form = {name: form for name in names - present if (form := _other_form(name))}
    others, present_others = _paths_as_spelt(root, set(other_form.values()), as_spelt)
    found = {name: others[form] for name, form in other_form.items() if form in present_others}
    return path_of | found, present | set(found)


def _paths_as_spelt(
    root: Path, names: Set[str], as_spelt: Callable[[Path, str], str]
) -> tuple[dict[str, str], set[str]]:
    folder_of = {folder: as_spelt(root, folder) for folder in set(map(posixpath.dirname, names))}
    folders = sorted(set(folder_of.values()))
    on_disk = NameMatcher.from_paths(name for folder in folders for name in list_media(root, folder))
    path_of: dict[str, str] = {}
    present: set[str] = set()
    for name in names:
        path = f"{folder_of[posixpath.dirname(name)]}/{posixpath.basename(name)}"
        found = on_disk.find(path)
        path_of[name] = name if found == name else found  # mostly, and then no second text of each is kept
        if stem_of(path) in on_disk.paths_by_stem:
            present.add(name)
    return path_of, present


def _other_form(name: str) -> str | None:
    """Path of a video without the folder `videos` above it, or with one; None of a frame."""
    if is_image(name):
        return None
    folder, _, file = name.rpartition("/")
    above, _, last = folder.rpartition("/")
    return f"{above}/{file}" if last.lower() in VIDEO_FOLDERS else f"{folder}/videos/{file}"


def _entry(media_file: FoundFile, folders: FfppFolders, official: OfficialSplits) -> Entry:
    flat, frame = _flat_frame(media_file.relative, folders), FramePath.parse(media_file.relative)
    if flat:
        above, stem, end = [*flat.folders], flat.stem, flat.end
    elif frame:
        above, stem, end = [*frame.above], frame.stem, f"{frame.suffix}/{frame.below}"
    else:
        *above, file = media_file.relative.split("/")
        stem, end = posixpath.splitext(file)
    place = folders.place(above)
    name = VideoName.parse(stem)
    known = name if name and place.holds(name) else None
    originals = folders.originals(above, known) if known and known.source else None
    has_mask = known is not None and known.source is not None and not (flat or frame)
    identity = known.identities()[-1 if place.method in SWAPS else 0] if known else None
    people = name.identities() if name else mentioned_identities(stem)
    return Entry.of_file(
        media_file,
        label=place.label,
        split=official.split(name.target, name.source) if name and name.people == "youtube" else None,
        source_id=f"{originals}/{known.recording}{end}" if known and originals else None,
        footage=f"{name.people}/{name.recording}".lower() if name else None,
        identity=identity,
        related_identities=tuple(person for person in people if person != identity),
        dataset="ffpp",
        method=place.method,
        compression=place.compression,
        mask_id=f"{folders.masks(above)}/{stem}{end}" if has_mask else None,
    )


def _flat_frame(relative: str, folders: FfppFolders) -> FlatFrame | None:
    """An image in a folder of a method or of the originals that is called after a video: `c23/033_097_0001.png`."""

    def has_video(above: Sequence[str], stem: str) -> bool:
        name = VideoName.parse(stem)
        return name is not None and folders.place(above).holds(name)

    return FlatFrame.parse(relative, has_video)


def _video_of(relative: str, folders: FfppFolders) -> str:
    return video_of_flat(_flat_frame(relative, folders), relative)


def _video_of_original(entry: Entry, source_id: str, folders: FfppFolders) -> str:
    flat = _flat_frame(entry.video_id, folders)
    name = VideoName.parse(flat.stem) if flat else None
    return path_of_video(source_id.split("/")[:-1], name.recording) if name else video_of_frame(source_id)


def _expected(entries: Iterable[Entry], folders: FfppFolders, official: OfficialSplits) -> set[str]:
    """Videos that should be on disk: originals of the fakes, and what the official splits list for each folder."""
    originals = {_video_of_original(entry, entry.source_id, folders) for entry in entries if entry.source_id}
    places = {
        (entry.label, _video_of(entry.video_id, folders).rpartition("/")[0])
        for entry in entries
        if entry.identity and entry.identity.startswith("youtube/")
    }
    listed = {
        f"{folder}/{stem}.mp4"
        for label, folder in places
        for pair in official.pairs
        for stem in (("_".join(pair), "_".join(reversed(pair))) if label else pair)
    }
    return originals | listed
