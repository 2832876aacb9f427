"""A cluster as a user starts one for `--scheduler`: its certificate is in a file, and Dask's configuration names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
import pytest
from assets_in_process import share_decoders
from distributed import Security
from facefeed.pipeline.execution import cluster
from facefeed.pipeline.execution.certificate import write_certificate


@contextmanager
def certificate_in_configuration(path: Path) -> Iterator[None]:
    """Writes a certificate, and configures Dask to use it, here and in processes that are started."""
    write_certificate(path)
    names = ("ca-file", "scheduler.cert", "worker.cert", "client.cert")
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set({f"distributed.comm.tls.{name}": str(path) for name in names}),
    ):
        for name in names:
            variable = name.upper().replace(".", "__").replace("-", "_")
            patch.setenv(f"DASK_DISTRIBUTED__COMM__TLS__{variable}", str(path))
        yield


@contextmanager
def joinable_cluster(certificate: Path) -> Iterator[str]:
    """Two worker processes, as `local_client` starts them; yields the address."""
    with certificate_in_configuration(certificate), pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster.Security, "temporary", lambda: Security(require_encryption=True))
        with cluster.local_client(2) as client:
            patch.undo()
            client.run(share_decoders)
            yield str(client.scheduler.address)
