"""A certificate for one Dask cluster: who has it may connect to its scheduler and workers, nobody else.

As a command, `python -m facefeed.pipeline.execution.certificate FILE` writes one for processes on several hosts. Dask
takes it from its configuration: `distributed.comm.tls`, for every role both as certificate and as authority.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from distributed import Security


def write_certificate(path: Path) -> None:
    """Writes a new key and its certificate (PEM) to `path`, a file that only this user may read; replaces it."""
    security = Security.temporary()
    path.unlink(missing_ok=True)  # an existing file would keep its permissions, and whoever has it open
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(security.tls_scheduler_key + security.tls_scheduler_cert)


if __name__ == "__main__":
    write_certificate(Path(sys.argv[1]))
