"""An address as people see it: without what only the store may know."""

from __future__ import annotations

import pytest
from facefeed.pipeline.dataset.stores.address import StoreAddress, name_of, without_credentials
from facefeed.pipeline.errors import UsageError


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:hidden@host/videos", "https://host/videos"),
        ("https://me:hid@den@host/videos", "https://host/videos"),
        ("sftp://me@host/faces@home", "sftp://host/faces@home"),
        ("https://host/videos?token=hidden", "https://host/videos"),
        ("https://host?token=hid@den", "https://host"),
        ("github://people:faces@main/videos", "github://people:faces@main/videos"),
        ("az://faces@account.dfs.core.windows.net/set", "az://faces@account.dfs.core.windows.net/set"),
        ("abfss://container@account.dfs.core.windows.net/set", "abfss://container@account.dfs.core.windows.net/set"),
    ],
)
def test_an_address_is_shown_without_credentials_and_with_all_that_names_its_folder(url: str, shown: str) -> None:
    assert (without_credentials(url), str(StoreAddress(url))) == (shown, shown)


def test_a_dataset_at_the_root_of_a_server_is_called_after_its_host() -> None:
    assert name_of("https://me:hidden@host/") == "host"


def test_an_address_that_is_none_is_shown_as_it_is_and_refused_where_it_is_opened() -> None:
    assert without_credentials("s3://") == "s3://"
    with pytest.raises(UsageError):
        StoreAddress("s3://")


def test_a_librarys_error_is_shown_without_the_password_of_an_address() -> None:
    address = StoreAddress("https://me:hid@den@host/videos")
    assert address.redact("404: https://me:hid@den@host/videos") == "404: https://***host/videos"


def test_a_librarys_error_is_shown_without_options_however_they_are_written() -> None:
    address = StoreAddress("gs://bucket", {"token": {"keys": ["a/b+c=", "line\none"]}})
    assert address.redact("a/b+c= a%2Fb%2Bc%3D 'line\\none' line\none") == "*** *** '***' ***"
