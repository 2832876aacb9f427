"""Code that takes over the decoder process can reach nobody, start nothing, change nothing, and finds no secret."""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from assets_video import numbered, write_video
from facefeed.pipeline.errors import InputError
from facefeed.pipeline.video import DecoderLimits, MediaReader, Sampling
from facefeed.pipeline.video.decoder.sandbox.seccomp import filter_program

ALL = Sampling(every=1)
TAKEN_OVER = """
import ctypes, os, signal, socket, subprocess, sys, threading
from facefeed.pipeline.errors import InputError
from facefeed.pipeline.video.decoder import child

def in_a_thread():
    thread = threading.Thread(target=os.getpid)
    thread.start()
    thread.join()

ATTEMPTS = {
    "socket": socket.socket,
    "socketpair": socket.socketpair,
    "fork": os.fork,
    "execute": lambda: os.execv("/bin/true", ["true"]),
    "spawn": lambda: subprocess.run(["/bin/true"]),
    "create": lambda: open(__PATH__ + ".new", "w"),
    "overwrite": lambda: os.open(__PATH__, os.O_RDWR),
    "remove": lambda: os.unlink(__PATH__),
    "rename": lambda: os.rename(__PATH__, __PATH__ + ".old"),
    "signal": lambda: os.kill(os.getppid(), 0),
    "remember": lambda: os.memfd_create("program"),
    "thread": in_a_thread,
    "own signal": lambda: os.kill(os.getpid(), 0),
    "read": lambda: open(__PATH__, "rb").close(),
    "read-elsewhere": lambda: open("/etc/passwd", "rb").close(),
    "read-environment": lambda: open(f"/proc/{os.getppid()}/environ", "rb").close(),
    "read-by-link": lambda: open("/proc/self/root/etc/passwd", "rb").close(),
    "list": lambda: os.listdir("/"),
    "list-siblings": lambda: os.listdir(os.path.dirname(os.path.dirname(__PATH__))),
    "list-own": lambda: os.listdir(os.path.dirname(__PATH__)),
}

def open_media_file(path):
    global __PATH__
    __PATH__ = path
    try:
        ATTEMPTS[os.path.basename(path)]()
    except OSError as error:
        raise InputError("unreadable", f"errno {error.errno}")
    raise InputError("unreadable", "done")

child.open_media_file = open_media_file
child.main()
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only folder that the decoder needs."""
    return tmp_path_factory.mktemp("source")


@pytest.fixture(scope="module")
def taken_over(source: Path) -> Iterator[MediaReader]:
    with MediaReader(DecoderLimits(command=(sys.executable, "-P", "-c", TAKEN_OVER)), [source]) as reader:
        yield reader


def attempt(reader: MediaReader, path: Path) -> str:
    path.write_bytes(b"as it was")
    with pytest.raises(InputError) as caught:
        list(reader.frames(path, ALL))
    assert path.read_bytes() == b"as it was"
    assert list(path.parent.iterdir()) == [path]
    path.unlink()
    return caught.value.detail


@pytest.mark.parametrize(
    "name",
    [
        "socket",
        "socketpair",
        "fork",
        "execute",
        "spawn",
        "create",
        "overwrite",
        "remove",
        "rename",
        "signal",
        "remember",
    ],
)
def test_a_decoder_that_was_taken_over_gets_nowhere(taken_over: MediaReader, source: Path, name: str) -> None:
    assert attempt(taken_over, source / name) == f"errno {errno.EPERM}"


@pytest.mark.parametrize("name", ["read-elsewhere", "read-environment", "read-by-link", "list", "list-siblings"])
def test_a_decoder_that_was_taken_over_reads_nothing_but_the_source(
    taken_over: MediaReader, source: Path, name: str
) -> None:
    assert attempt(taken_over, source / name) == f"errno {errno.EACCES}"


@pytest.mark.parametrize("name", ["thread", "own signal", "read", "list-own"])
def test_what_decoding_takes_stays_allowed(taken_over: MediaReader, source: Path, name: str) -> None:
    assert attempt(taken_over, source / name) == "done"


def test_a_kernel_without_landlock_warns_and_decodes(tmp_path: Path) -> None:
    path = write_video(tmp_path / "numbered.mp4", [numbered(0)])
    elsewhere = (
        "from facefeed.pipeline.video.decoder import child\n"
        "from facefeed.pipeline.video.decoder.sandbox import landlock\n"
        "landlock._CREATE_RULESET = 9999; child.main()"
    )
    with (
        MediaReader(DecoderLimits(command=(sys.executable, "-P", "-c", elsewhere)), [tmp_path]) as reader,
        pytest.warns(RuntimeWarning, match="can read files outside the source: the kernel has no Landlock"),
    ):
        assert len(list(reader.frames(path, ALL))) == 1


def test_a_codec_of_several_threads_still_decodes(tmp_path: Path) -> None:
    path = write_video(tmp_path / "numbered.mp4", [numbered(index) for index in range(20)])
    with MediaReader(DecoderLimits(threads=4)) as reader:
        assert len(list(reader.frames(path, ALL))) == 20


def test_the_child_inherits_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LD_PRELOAD_NOT", "x")
    monkeypatch.setenv("LC_TIME", "C")
    path = write_video(tmp_path / "numbered.mp4", [numbered(0)])
    with MediaReader() as reader:
        list(reader.frames(path, ALL))
        environment = Path(f"/proc/{reader.child_pid}/environ").read_bytes().split(b"\0")
    names = {variable.partition(b"=")[0].decode() for variable in environment if variable}
    assert "LC_TIME" in names
    assert {name for name in names if name in os.environ and not name.startswith(("LC_", "PYTHON"))} <= {
        "HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TZ", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"
    }  # fmt: skip


def test_a_missing_filter_of_system_calls_warns(tmp_path: Path) -> None:
    path = write_video(tmp_path / "numbered.mp4", [numbered(0)])
    elsewhere = (
        "import platform; platform.machine = lambda: 'riscv64'\n"
        "from facefeed.pipeline.video.decoder import child; child.main()"
    )
    with (
        MediaReader(DecoderLimits(command=(sys.executable, "-P", "-c", elsewhere))) as reader,
        pytest.warns(RuntimeWarning, match="riscv64"),
    ):
        assert len(list(reader.frames(path, ALL))) == 1


# ---- the filter itself, of both machines, run step by step as the kernel does

PID = 4242
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, KILLED = "allowed", "killed"
X86_64, AARCH64 = "x86_64", "aarch64"
DENIED, HIDDEN = errno.EPERM, errno.ENOSYS
CREATE, THREAD = os.O_WRONLY | os.O_CREAT, 0x003D0F00


def verdict(machine: str, number: int, *arguments: int, arch: int | None = None) -> str | int:
    """What the filter says of a call."""
    data = struct.pack("<iIQ6Q", number, arch or ARCH[machine], 0, *arguments, *[0] * (6 - len(arguments)))
    steps = list(struct.iter_unpack("=HBBI", filter_program(machine, PID)))
    assert len(steps) <= 4096
    at = value = 0
    while True:
        code, if_true, if_false, k = steps[at]
        at += 1
        if code == 0x06:
            return {0x7FFF: ALLOWED, 0x8000: KILLED}.get(k >> 16, k & 0xFFFF if k >> 16 == 5 else "?")
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, k)
        else:
            at += if_true if {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code] else if_false


@pytest.mark.parametrize(
    ("machine", "number", "arguments", "expected"),
    [
        (X86_64, 41, (), DENIED), (AARCH64, 198, (), DENIED),  # socket
        (X86_64, 42, (), DENIED), (AARCH64, 203, (), DENIED),  # connect
        (X86_64, 59, (), DENIED), (AARCH64, 221, (), DENIED),  # execve
        (X86_64, 57, (), DENIED), (X86_64, 58, (), DENIED),  # fork, vfork
        (X86_64, 101, (), DENIED), (AARCH64, 117, (), DENIED),  # ptrace
        (X86_64, 87, (), DENIED), (AARCH64, 35, (), DENIED),  # unlink, unlinkat
        (X86_64, 425, (), DENIED), (AARCH64, 425, (), DENIED),  # io_uring_setup
        (X86_64, 435, (), HIDDEN), (AARCH64, 435, (), HIDDEN),  # clone3
        (X86_64, 56, (THREAD,), ALLOWED), (AARCH64, 220, (THREAD,), ALLOWED),  # clone
        (X86_64, 56, (17,), DENIED), (AARCH64, 220, (17,), DENIED),
        (X86_64, 2, (0, os.O_RDONLY | os.O_CLOEXEC), ALLOWED), (X86_64, 2, (0, CREATE), DENIED),  # open
        (X86_64, 257, (0, 0, os.O_RDONLY), ALLOWED), (AARCH64, 56, (0, 0, os.O_RDONLY), ALLOWED),  # openat
        (X86_64, 257, (0, 0, os.O_RDWR), DENIED), (AARCH64, 56, (0, 0, CREATE), DENIED),
        (X86_64, 62, (PID, 11), ALLOWED), (AARCH64, 129, (PID, 11), ALLOWED),  # kill
        (X86_64, 62, (1, 9), DENIED), (AARCH64, 129, (2**64 - 1, 9), DENIED),
        (X86_64, 234, (PID, PID, 6), ALLOWED), (AARCH64, 131, (PID, PID, 6), ALLOWED),  # tgkill
        (X86_64, 302, (0,), ALLOWED), (AARCH64, 261, (0,), ALLOWED), (X86_64, 302, (1,), DENIED),  # prlimit64
        (X86_64, 0, (), ALLOWED), (AARCH64, 63, (), ALLOWED),  # read
        (X86_64, 9, (), ALLOWED), (AARCH64, 222, (), ALLOWED),  # mmap
        (X86_64, 202, (), ALLOWED), (AARCH64, 98, (), ALLOWED),  # futex
        (X86_64, 231, (), ALLOWED), (AARCH64, 94, (), ALLOWED),  # exit_group
    ],
)  # fmt: skip
def test_each_call_gets_its_verdict(machine: str, number: int, arguments: tuple[int, ...], expected: str | int) -> None:
    assert verdict(machine, number, *arguments) == expected


def test_calls_of_another_abi_do_not_bypass_the_filter() -> None:
    assert verdict(X86_64, 359, arch=0x40000003) == KILLED  # socket, as a program of 32 bits calls it
    assert verdict(AARCH64, 281, arch=0x40000028) == KILLED
    assert verdict(X86_64, 0x40000000 + 41) == HIDDEN
