"""Seccomp filter of the decoder process, in classic BPF: which system calls it may not make.

A denylist, since the calls that libraries need differ between releases. Denied: network, new programs and processes,
access to other processes, changes of files. Allowed: reading files, memory, threads. Documents: seccomp(2), the
kernel's Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_Calls = dict[str, tuple[int | None, int | None]]
_DENIED: _Calls = {  # numbers on x86_64 and aarch64; None: aarch64 lacks the older calls
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "io_uring_setup": (425, 425),
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None), "unshare": (272, 97),
    "setns": (308, 268), "memfd_create": (319, 279),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "shmget": (29, 194), "shmat": (30, 196),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "creat": (85, None), "unlink": (87, None), "unlinkat": (263, 35), "rmdir": (84, None), "rename": (82, None),
    "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None), "linkat": (265, 37), "symlink": (88, None),
    "symlinkat": (266, 36), "mkdir": (83, None), "mkdirat": (258, 34), "mknod": (133, None), "mknodat": (259, 33),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54), "truncate": (76, 45), "ftruncate": (77, 46),
    "fallocate": (285, 47), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "mount": (165, 40),
    "chroot": (161, 51), "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217),
    "userfaultfd": (323, 282),
}  # fmt: skip
# Their flags are passed in memory, which a filter cannot read: ENOSYS makes libc fall back to the older calls.
_NOT_IMPLEMENTED: _Calls = {"clone3": (435, 435), "openat2": (437, 437)}
_OWN_PROCESS_ONLY: _Calls = {"kill": (62, 129), "tgkill": (234, 131)}
_THREADS_ONLY: _Calls = {"clone": (56, 220)}
_OWN_LIMITS_ONLY: _Calls = {"prlimit64": (302, 261)}
_READ_ONLY_OPENS: tuple[tuple[_Calls, int], ...] = (({"open": (2, None)}, 1), ({"openat": (257, 56)}, 2))

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000  # the x32 ABI's numbers for x86_64's calls
_CLONE_THREAD = 0x00010000
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGS_AT = 0, 4, 16  # struct seccomp_data

_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER = 1
_ALL_THREADS, _KEEP_SPECULATION = 1, 4  # without the second, old kernels add slow speculation mitigations


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install_filter() -> str:
    """Install the filter in all threads of this process, irrevocably; return why that is impossible, or ""."""
    machine = platform.machine()
    if machine not in _AUDIT_ARCH or ctypes.sizeof(ctypes.c_void_p) != 8:
        return f"there is none for {machine}"
    libc = ctypes.CDLL(None, use_errno=True)
    program = filter_program(machine, os.getpid())
    program_struct = ctypes.byref(_Program(len(program) // 8, program))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for flags in (_ALL_THREADS | _KEEP_SPECULATION, _ALL_THREADS):
        numbers = (ctypes.c_long(number) for number in (_SECCOMP[machine], _SET_MODE_FILTER, flags))
        if libc.syscall(*numbers, program_struct) == 0:
            return ""
    return f"the kernel refuses it ({os.strerror(ctypes.get_errno())})"


def filter_program(machine: str, pid: int) -> bytes:
    """Return the BPF program for process `pid` on `machine` (x86_64 or aarch64), 8 bytes per instruction."""
    column = tuple(_AUDIT_ARCH).index(machine)
    denied = _ERRNO | errno.EPERM
    program = [
        _bpf(_LOAD, _ARCH_AT), _bpf(_JUMP_EQUAL, _AUDIT_ARCH[machine], 1, 0), _bpf(_RETURN, _KILL),
        _bpf(_LOAD, _NUMBER_AT),
    ]  # fmt: skip
    if machine == "x86_64":
        program += [_bpf(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _bpf(_RETURN, _ERRNO | errno.ENOSYS)]
    program += _match_calls(_DENIED, column, [_bpf(_RETURN, denied)])
    program += _match_calls(_NOT_IMPLEMENTED, column, [_bpf(_RETURN, _ERRNO | errno.ENOSYS)])
    program += _match_calls(_OWN_PROCESS_ONLY, column, _branch_on_argument(0, _JUMP_EQUAL, pid, _ALLOW, denied))
    program += _match_calls(_OWN_LIMITS_ONLY, column, _branch_on_argument(0, _JUMP_EQUAL, 0, _ALLOW, denied))
    program += _match_calls(_THREADS_ONLY, column, _branch_on_argument(0, _JUMP_ANY_BIT, _CLONE_THREAD, _ALLOW, denied))
    for calls, flags_argument in _READ_ONLY_OPENS:
        program += _match_calls(
            calls, column, _branch_on_argument(flags_argument, _JUMP_ANY_BIT, _WRITE_FLAGS, denied, _ALLOW)
        )
    return b"".join([*program, _bpf(_RETURN, _ALLOW)])


def _match_calls(calls: _Calls, column: int, action: list[bytes]) -> list[bytes]:
    """Instructions that run `action`, which returns, if the loaded call number is one of `calls`."""
    numbers = [numbers[column] for numbers in calls.values()]
    return [
        instruction for n in numbers if n is not None for instruction in (_bpf(_JUMP_EQUAL, n, 0, len(action)), *action)
    ]


def _branch_on_argument(argument: int, test: int, value: int, if_true: int, if_false: int) -> list[bytes]:
    """Instructions that return one of two verdicts by an argument's lower 32 bits; both machines are little-endian."""
    load = _bpf(_LOAD, _ARGS_AT + 8 * argument)
    return [load, _bpf(test, value, 0, 1), _bpf(_RETURN, if_true), _bpf(_RETURN, if_false)]


def _bpf(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
