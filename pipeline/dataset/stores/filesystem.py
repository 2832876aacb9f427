"""`open_filesystem`: opens fsspec's file system of an address."""

from __future__ import annotations

import errno
import re
from types import MethodType
from typing import Any

from ...errors import StoppedError, UsageError
from ...files import refusal_text
from .address import StoreAddress
from .failures import is_unreachable

_PACKAGES = {
    "s3": "'facefeed[s3]'", "s3a": "'facefeed[s3]'", "gs": "'facefeed[gcs]'", "gcs": "'facefeed[gcs]'",
    "az": "'facefeed[azure]'", "abfs": "'facefeed[azure]'", "abfss": "'facefeed[azure]'", "hf": "huggingface_hub",
    "http": "aiohttp", "https": "aiohttp",
}  # fmt: skip
AZURE = ("az", "abfs", "abfss")
_ERRNOS_OF_CREDENTIALS = {None, errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR}
"""Of a file of credentials that cannot be read; None: of a library, without one."""
_QUERY = re.compile(r"\?[^\s'\")]+")


def open_filesystem(address: StoreAddress, *, repeats_requests: bool = False) -> tuple[Any, str]:
    """Opens the file system of a store; returns it and the path of the address in it.

    Args:
        address: of a folder.
        repeats_requests: whether the store's library may repeat requests that fail; those are not counted.

    Raises:
        UsageError: the package of the store is not installed, or its library does not accept the address, an option
            or the credentials.
        StoppedError: what checks the credentials cannot be reached, the disk fails, memory or a thread is refused.

    """
    protocol = address.protocol
    try:
        if address.url.startswith(("gs://", "gcs://")):
            files, path = _open_google(address, repeats_requests=repeats_requests)
        else:
            files, path = _open_registered(address, repeats_requests=repeats_requests)
    except ImportError as error:
        package = _PACKAGES.get(protocol, f"the package of fsspec's {protocol}://")
        raise UsageError(
            f"{address}: {protocol}:// needs a package that is not installed ({error}); run `pip install {package}`"
        ) from error
    except Exception as error:  # each store's library has errors of its own
        raise _not_opened(address, error) from None
    return files, path.rstrip("/")


def _not_opened(address: StoreAddress, error: Exception) -> UsageError | StoppedError:
    reason = _reason(address, error)
    if is_unreachable(error):
        return StoppedError(
            f"{address}: cannot be opened ({reason}); check the store, the network and endpoint_url, then run the same "
            "command again"
        )
    is_of_disk = isinstance(error, OSError) and error.errno not in _ERRNOS_OF_CREDENTIALS
    if is_of_disk or refusal_text(error) is not None:
        return StoppedError(f"{address}: cannot be opened ({reason}); fix that, then run the same command again")
    return UsageError(
        f"{address}: cannot be opened ({reason}); check the address, such as s3://bucket/faces (s3, gs, az, hf, file "
        "and others of fsspec), the credentials and storage_options"
    )


def _reason(address: StoreAddress, error: Exception) -> str:
    """The error's first line; without what storage_options, fsspec's configuration or a URL's query hold."""
    from fsspec.config import conf  # noqa: PLC0415 (only who reads from a store needs it)

    options = {"configured": conf, **address.options}
    text = _QUERY.sub("?***", StoreAddress(address.url, options).redact(str(error).strip()))
    name, first = type(error).__name__, text.partition("\n")[0]
    if type(error) in (TypeError, ValueError) and first:  # what was given wrong, in words
        return first
    return f"{name}: {first}" if first else name


def _open_registered(address: StoreAddress, *, repeats_requests: bool) -> tuple[Any, str]:
    import fsspec  # noqa: PLC0415 (only who reads from a store needs it)

    options = dict(address.options)
    is_single = address.protocol in ("s3", "s3a") and not repeats_requests
    if is_single:  # each attempt is counted by facefeed, so neither s3fs nor botocore repeats any
        config = options.get("config_kwargs") or {}
        options["config_kwargs"] = {"retries": {"total_max_attempts": 1}, **config}
    # fsspec knows the other name of abfs:// only once adlfs is installed.
    url = re.sub("^abfss://", "abfs://", address.url)
    files, path = fsspec.url_to_fs(url, skip_instance_cache=True, use_listings_cache=False, **options)
    if is_single:
        files.retries = 1
    if address.protocol in AZURE and not repeats_requests:
        _stop_azure_repeating(files)
    return files, str(path)


def _stop_azure_repeating(files: Any) -> None:
    """Azure's library repeats a request three times, 15 s and more after each failure; adlfs has no option for that."""
    policy = getattr(getattr(files.service_client, "_config", None), "retry_policy", None)
    if policy is not None:
        policy.total_retries = 0


def _open_google(address: StoreAddress, *, repeats_requests: bool) -> tuple[Any, str]:
    """Opens gcsfs's plain file system.

    The one that gcsfs registers asks for the type of the bucket by gRPC: where gRPC is not reachable, each request
    waits for up to 60 s, and processes forked from one that uses gRPC crash or hang.
    """
    from gcsfs.core import GCSFileSystem  # noqa: PLC0415 (an optional package)

    options = {**GCSFileSystem._get_kwargs_from_urls(address.url), **address.options}  # noqa: SLF001 (as fsspec does)
    files = GCSFileSystem(skip_instance_cache=True, use_listings_cache=False, **options)
    once = getattr(GCSFileSystem._request, "__wrapped__", None)  # noqa: SLF001 (without gcsfs's decorator that repeats)
    if once is not None and not repeats_requests:
        files._request = MethodType(once, files)  # noqa: SLF001
    return files, str(GCSFileSystem._strip_protocol(address.url))  # noqa: SLF001
