"""The form of a request."""

from __future__ import annotations

from ..request import ExportRequest
from ..rows import StoredRows
from .deepfakebench import DeepfakeBench
from .folders import Folders
from .form import Form
from .huggingface import HuggingFace
from .webdataset import WebDataset


def make_form(stored: StoredRows, request: ExportRequest) -> Form:
    """Plans the export that `request` asks for."""
    rows = stored.select(request.split)
    if request.form == "folders":
        return Folders(stored, rows)
    if request.form == "webdataset":
        return WebDataset(stored, rows, request.shard_bytes)
    if request.form == "hf":
        return HuggingFace(stored, rows, request.shard_bytes)
    return DeepfakeBench(stored, rows)
