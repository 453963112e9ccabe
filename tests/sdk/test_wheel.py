"""Wheels that are not what they say, or that reach beyond their folder, are refused by the name of the member."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from collections.abc import Callable

import pytest

from hubkernels.toolchain.sdk.wheel import DamagedWheelError, OpenWheel, is_inside
from tests.sdk.conftest import TORCH_FILES, digest, torch_wheel, write_wheel

NAME = "torch/include/ATen/h7.h"


def opened(content: bytes) -> OpenWheel:
    return OpenWheel(io.BytesIO(content), "w.whl")


def read_all(content: bytes) -> dict[str, bytes]:
    wheel = opened(content)
    return dict(wheel.read([name for name in wheel.names if ".dist-info/" not in name]))


def with_member(name: str, content: bytes, change: Callable[[zipfile.ZipInfo], None] = lambda _: None) -> bytes:
    """A wheel with one more member, which its RECORD lists."""
    buffer = io.BytesIO(
        write_wheel("w", "1", {"w/a.h": b"a"}, listed={name: f'"{name}",{digest(content)},{len(content)}'})
    )
    info = zipfile.ZipInfo("x")
    info.filename = name
    change(info)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(info, content)
    return buffer.getvalue()


def test_members_come_in_the_order_in_which_they_lie_and_whole() -> None:
    assert read_all(torch_wheel()) == TORCH_FILES


@pytest.mark.parametrize(
    "name",
    ["../evil.h", "w/../../evil.h", "/etc/evil.h", "w//evil.h", "w/./evil.h", "C:/evil.h", "w\\..\\evil.h"],
)
def test_a_path_out_of_the_folder_is_refused(name: str) -> None:
    with pytest.raises(DamagedWheelError, match=r"w\.whl is damaged: '.*evil\.h' leads out of the folder"):
        read_all(with_member(name, b"evil"))


def test_inside_is_what_stays_below() -> None:
    assert is_inside("a/b..c/..d")
    assert not any(map(is_inside, ("", "a/..", "..", "a\0b", "a\nb", "./a", "a/")))


def test_a_link_is_refused() -> None:
    def link(info: zipfile.ZipInfo) -> None:
        info.create_system = 3
        info.external_attr = (stat.S_IFLNK | 0o777) << 16

    with pytest.raises(DamagedWheelError, match=r"'w/link' is a link"):
        read_all(with_member("w/link", b"/etc/passwd", link))


def test_a_member_that_is_there_twice_is_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        content = with_member("w/a.h", b"a")
    with pytest.raises(DamagedWheelError, match=r"'w/a\.h' is in it twice"):
        read_all(content)


def test_a_member_that_no_record_lists_is_refused() -> None:
    with pytest.raises(DamagedWheelError, match=r"'w/a\.h' is not in its RECORD with a sha256"):
        read_all(write_wheel("w", "1", {"w/a.h": b"a"}, listed={"w/a.h": "w/a.h,md5=abc,1"}))


def test_a_member_of_other_bytes_than_its_record_says_is_refused() -> None:
    listed = {NAME: f"{NAME},{digest(b'other')},{len(TORCH_FILES[NAME])}"}
    with pytest.raises(DamagedWheelError, match=r"'torch/include/ATen/h7\.h' has sha256 \S+, its RECORD says"):
        read_all(write_wheel("torch", "1", TORCH_FILES, listed=listed))


def test_a_member_of_another_size_than_its_record_says_is_refused_unread() -> None:
    with pytest.raises(DamagedWheelError, match=r"'w/a\.h' is 1 bytes, its RECORD says 9"):
        read_all(write_wheel("w", "1", {"w/a.h": b"a"}, listed={"w/a.h": f"w/a.h,{digest(b'a')},9"}))


def patched(content: bytes, name: str, offset: int, form: str, value: int) -> bytes:
    """Overwrite a field of the directory's entry of a member."""
    at = content.rindex(name.encode()) - 46
    changed = bytearray(content)
    struct.pack_into(form, changed, at + offset, value)
    return bytes(changed)


def test_an_encrypted_member_is_refused() -> None:
    with pytest.raises(DamagedWheelError, match=r"'w/b\.h' is encrypted"):
        read_all(patched(with_member("w/b.h", b"b"), "w/b.h", 8, "<H", 1))


def test_more_than_the_declared_size_is_refused() -> None:
    """A member that unpacks to more than it declares, which its RECORD repeats."""
    content = write_wheel("w", "1", {"w/a.h": b"a" * 5000}, listed={"w/a.h": f"w/a.h,{digest(b'a' * 5000)},10"})
    with pytest.raises(DamagedWheelError, match=r"'w/a\.h' cannot be read"):
        read_all(patched(content, "w/a.h", 24, "<I", 10))


def test_a_member_too_large_for_any_wheel_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubkernels.toolchain.sdk.wheel._LARGEST", 1000)
    with pytest.raises(DamagedWheelError, match="unpacked it is larger than any wheel"):
        read_all(write_wheel("w", "1", {"w/a.h": bytes(1001)}))


def test_a_record_too_large_for_any_wheel_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubkernels.toolchain.sdk.wheel._LARGEST_RECORD", 1000)
    long = {f"w/{number}.h": b"" for number in range(50)}
    with pytest.raises(DamagedWheelError, match=r"'w-1\.dist-info/RECORD' is \d+ bytes, more than any wheel"):
        opened(write_wheel("w", "1", long))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_is_packed_in_a_way_that_has_no_bound_is_refused(method: int) -> None:
    """These give all that a piece unpacks to, however little of it was asked for."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("w-1.dist-info/RECORD", "w-1.dist-info/RECORD,,\n")
    with pytest.raises(DamagedWheelError, match=r"'w-1\.dist-info/RECORD' is packed by method \d+"):
        opened(buffer.getvalue())


@pytest.mark.parametrize("names", [("w/a", "w/a/b.h"), ("w/a/b.h", "w/a"), ("w/a/b/c.h", "w/a")])
def test_a_file_that_is_a_folder_too_is_refused(names: tuple[str, str]) -> None:
    with pytest.raises(DamagedWheelError, match=r"'w/a' is a file and a folder"):
        read_all(write_wheel("w", "1", dict.fromkeys(names, b"a")))


@pytest.mark.parametrize("content", [b"", b"no zip at all", b"PK\5\6" + bytes(18)])
def test_what_is_no_wheel_is_told(content: bytes) -> None:
    with pytest.raises(DamagedWheelError, match=r"w\.whl is damaged"):
        opened(content)


def test_no_truncated_or_flipped_wheel_gives_other_bytes() -> None:
    """Every place in steps: what comes is what was put in, or an error of the user's."""
    whole = write_wheel("w", "1", {"w/a.h": b"a" * 300, "w/b.h": b"b" * 300})
    right = read_all(whole)
    for at in range(0, len(whole), 3):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :]):
            try:
                found = read_all(damaged)
            except DamagedWheelError:
                continue
            assert found.items() <= right.items(), at
