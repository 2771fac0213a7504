"""Calls of the kernel that no answer needs, and that pass a bound of the sandbox: they fail with "not permitted".

Memory that no process has mapped is not counted (memfd, System V), and a user namespace brings file systems in memory;
the keyring and AF_VSOCK belong to no namespace. The list is a filter of seccomp, for x86-64 and 64-bit ARM; elsewhere
nothing is refused.
"""

import ctypes
import errno
import platform
import struct

__all__ = ["refuse_calls"]

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CALLS = {  # name: its number on x86-64, and on ARM
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "mq_open": (240, 180),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
}
CLONE, CLONE3, SOCKET, MMAP, PRLIMIT = (56, 220), (435, 435), (41, 198), (9, 222), (302, 261)
NAMESPACES = 0x7E020080  # all flags CLONE_NEW...
SHARED = 0x20 | 0x01  # MAP_ANONYMOUS and MAP_SHARED: it is not counted after MADV_DONTNEED
NETWORKS = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
LOAD, EQUAL, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06  # instructions of BPF
NUMBER, ARCHITECTURE, ALLOW = 0, 4, 0x7FFF0000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, value


def refuse_calls() -> bool:
    """Let this process, and all that it starts, do without these calls; return whether the kernel has agreed."""
    machine = platform.machine()
    if platform.system() != "Linux" or machine not in ARCHITECTURES:
        return False
    instructions = _filter(ARCHITECTURES[machine], list(ARCHITECTURES).index(machine))
    code = b"".join(struct.pack("HBBI", *one) for one in instructions)
    buffer = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HL", len(instructions), ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    return not (libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, MODE_FILTER, program, 0, 0))


def _filter(architecture: int, which: int) -> list[Instruction]:
    refused = (RETURN, 0, 0, 0x00050000 | errno.EPERM)
    missing = (RETURN, 0, 0, 0x00050000 | errno.ENOSYS)  # then the C library takes `clone`
    found: list[Instruction] = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), refused, (LOAD, 0, 0, NUMBER)]
    if architecture == ARCHITECTURES["x86_64"]:
        found += [(AT_LEAST, 0, 1, 0x40000000), refused]  # calls of the x32 form
    for numbers in CALLS.values():
        found += [(EQUAL, 0, 1, numbers[which]), refused]
    found += [(EQUAL, 0, 1, CLONE3[which]), missing]
    for call, checks in (
        (CLONE, [_argument(0), (AND, 0, 0, NAMESPACES), (EQUAL, 1, 0, 0), refused]),
        (MMAP, [_argument(3), (AND, 0, 0, SHARED), (EQUAL, 0, 1, SHARED), refused]),
        (PRLIMIT, [_argument(0), (EQUAL, 1, 0, 0), refused]),  # limits of another process
        (SOCKET, [_argument(0), *((EQUAL, 4 - i, 0, kind) for i, kind in enumerate(NETWORKS)), refused]),
    ):
        found += [(EQUAL, 0, len(checks) + 1, call[which]), *checks, (LOAD, 0, 0, NUMBER)]
    return [*found, (RETURN, 0, 0, ALLOW)]


def _argument(number: int) -> Instruction:
    """Return what loads the lower half of an argument."""
    return LOAD, 0, 0, 16 + 8 * number
