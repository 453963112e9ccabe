"""What is read back of device code: the devices in a library, and what ptxas says of kernels."""

from __future__ import annotations

import struct

from hubkernels.abi.fatbin import _archs
from hubkernels.toolchain.usage import KernelUsage, is_usage, parse_usage

ELF, PTX = 2, 1

TOLD = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5spillPf' for 'sm_90a'
ptxas info    : Function properties for _Z6calleef
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Function properties for _Z5spillPf
    880 bytes stack frame, 980 bytes spill stores, 1140 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 880 bytes cumulative stack size, 40 bytes smem
ptxas info    : Compile time = 62.197 ms
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_80'
ptxas info    : Function properties for _Z1kPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 360 bytes cmem[0]
"""


def entry(kind: int, arch: int, flags: int, content: bytes) -> bytes:
    head = struct.pack("<HHIQIIHHIQQQ", kind, 0x101, 64, len(content), 0, 0, 8, 1, arch, 0, flags, 0)
    return head + bytes(64 - len(head)) + content


def container(*entries: bytes) -> bytes:
    inside = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(inside)) + inside


def test_devices_are_read_in_the_words_of_build_toml() -> None:
    first = container(entry(ELF, 80, 0x11, b"x" * 24), entry(ELF, 90, 0x100011, b"\x50\xed\x55\xba" * 4))
    second = container(entry(ELF, 100, 0x1200011, b""), entry(PTX, 120, 0x8011, b"y" * 8), entry(9, 75, 0, b""))
    assert set(_archs(first + bytes(4) + second)) == {"8.0", "9.0a", "10.0f", "12.0+PTX"}
    assert set(_archs(b"")) == set()


def test_what_kernels_take_is_read_and_that_of_called_functions_is_not_theirs() -> None:
    assert parse_usage(TOLD) == (
        KernelUsage("_Z1kPf", "80", registers=8),
        KernelUsage("_Z5spillPf", "90a", 32, shared=40, stack=880, spill_stores=980, spill_loads=1140),
    )


def test_only_a_kernel_that_spills_is_told_of() -> None:
    quiet, spilling = parse_usage(TOLD)
    assert quiet.spill("k(float*)") is None
    assert spilling.spill("spill(float*)") == (
        "spill(float*) for sm_90a spills 980 bytes and loads 1140: its 32 registers do not hold its values"
    )


def test_warnings_of_ptxas_are_no_lines_about_use() -> None:
    assert all(is_usage(line) for line in TOLD.splitlines())
    assert not is_usage("ptxas warning : Value of threads per SM is out of range")
    assert not is_usage("k.cu(3): warning #177-D: variable was declared but never referenced")
