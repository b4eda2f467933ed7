"""Starts a program that cannot open netlink sockets, as in a sandbox: usage: PROGRAM ARGUMENTS..."""

import ctypes
import os
import platform
import struct
import sys

AF_NETLINK = 16
SOCKET = {"x86_64": 41, "aarch64": 198}[platform.machine()]
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, EPERM = 0x7FFF0000, 0x00050001

steps = [
    (LOAD, 0, 0, 0),  # the number of the system call
    (JUMP_IF_EQUAL, 0, 3, SOCKET),
    (LOAD, 0, 0, 16),  # the lower half of its first argument
    (JUMP_IF_EQUAL, 0, 1, AF_NETLINK),
    (RETURN, 0, 0, EPERM),
    (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
program = Program(len(steps), ctypes.addressof(code))
for arguments in [
    (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
    (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
]:
    if libc.prctl(*arguments) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
os.execv(sys.argv[1], sys.argv[1:])
