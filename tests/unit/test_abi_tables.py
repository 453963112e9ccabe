"""The ABI tables: equal to what others publish, true of the libraries that are installed, whole in the stubs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from hubkernels.abi.exports import load_exports, versioned_names
from hubkernels.abi.installed import SYSTEM_FOLDERS
from hubkernels.abi.stub import shared_object
from hubkernels.config.abi_policy import load_abi_policy
from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.machine import find_torch, this_machine
from hubkernels.model.artifact import LIMITED_API
from hubkernels.model.cpu import CPUS
from hubkernels.model.version import Version
from hubkernels.toolchain.link import find_link_stubs

POLICY = load_abi_policy()
CPU = this_machine().platform.cpu


@pytest.mark.parametrize("cpu", CPUS)
def test_the_versions_are_those_of_auditwheel(cpu: str) -> None:
    pytest.importorskip("auditwheel", reason="auditwheel is installed in the main environment alone")
    text = resources.files("auditwheel.policy").joinpath("manylinux-policy.json").read_text(encoding="utf-8")
    (policy,) = (entry for entry in json.loads(text) if entry["name"] == POLICY.name)
    for prefix in ("GLIBC", "GLIBCXX", "CXXABI", "GCC"):
        assert list(POLICY.versions[cpu][prefix]) == policy["symbol_versions"][cpu][prefix]
    loaders = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}  # part of every glibc; auditwheel lets it pass unnamed
    assert set(POLICY.needed["system"]) - loaders <= set(policy["lib_whitelist"])


@pytest.mark.parametrize("cpu", CPUS)
def test_the_limits_are_the_promised_ones(cpu: str) -> None:
    limits = {prefix: POLICY.newest(cpu, prefix) for prefix in ("GLIBC", "GLIBCXX", "CXXABI")}
    assert limits == {"GLIBC": "2.28", "GLIBCXX": "3.4.24", "CXXABI": "1.3.11"}
    assert Version((3, 9)) == LIMITED_API


@pytest.mark.parametrize("cpu", CPUS)
def test_every_export_has_an_allowed_version(cpu: str) -> None:
    strange = [
        pair
        for pair in versioned_names(cpu)
        if pair[1].partition("_")[2] not in POLICY.versions[cpu].get(pair[1].partition("_")[0], ())
    ]
    assert strange == []
    assert set(load_exports(cpu)) - set(POLICY.needed["system"]) == {"libgomp.so.1"}


def path_of(library: str) -> Path | None:
    torch = find_torch()
    if library == "libgomp.so.1":
        return torch.lib / library if torch else None
    paths = (Path(folder.format(cpu=CPU)) / library for folder in SYSTEM_FOLDERS)
    return next((path for path in paths if path.is_file()), None)


def defined(content: Any) -> Iterator[tuple[str, str, bool]]:  # noqa: ANN401 - elftools has no types
    """(name, version, whether it is the default one) of a library."""
    elf: Any = ELFFile(content)
    numbers = elf.get_section_by_name(".gnu.version")
    names = {d["vd_ndx"]: next(a).name for d, a in elf.get_section_by_name(".gnu.version_d").iter_versions()}
    for index, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
        number = numbers.get_symbol(index)["ndx"]
        if symbol["st_shndx"] != "SHN_UNDEF" and isinstance(number, int):
            yield symbol.name, names[number & 0x7FFF], not number & 0x8000


@pytest.mark.skipif(CPU not in CPUS, reason="there is no table for this machine's CPU")
def test_everything_in_the_table_is_in_the_libraries_of_this_machine() -> None:
    """They are newer, and nothing is ever taken away. A symbol may have moved to another library of glibc."""
    paths = {library: path_of(library) for library in load_exports(CPU)}
    missing = sorted(library for library, path in paths.items() if path is None)
    assert missing in ([], ["libgomp.so.1"]), "libgomp is looked for in an installed torch"
    there: set[tuple[str, str]] = set()
    for path in filter(None, paths.values()):
        with path.open("rb") as file:
            there |= {(name, version) for name, version, _ in defined(file)}
    promised = {
        (e.name, e.version) for library in load_exports(CPU) if paths[library] for e in load_exports(CPU)[library]
    }
    assert promised - there == set()


@pytest.mark.parametrize("cpu", CPUS)
def test_a_stub_exports_the_table_and_says_its_name(cpu: str) -> None:
    for library, exports in load_exports(cpu).items():
        content = shared_object(cpu, library, exports)
        assert content == shared_object(cpu, library, exports)
        elf: Any = ELFFile(io.BytesIO(content))
        assert (elf["e_machine"], elf["e_type"]) == ({"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}[cpu], "ET_DYN")
        names = [
            tag.soname for tag in elf.get_section_by_name(".dynamic").iter_tags() if tag.entry.d_tag == "DT_SONAME"
        ]
        assert names == [library]
        made = list(defined(io.BytesIO(content)))
        assert {(name, version) for name, version, _ in made} == {(e.name, e.version) for e in exports}
        defaults = [name for name, _, default in made if default]
        assert len(defaults) == len(set(defaults)) == len({e.name for e in exports})


def test_the_newest_version_of_a_name_is_its_default() -> None:
    made = defined(io.BytesIO(shared_object("x86_64", "libc.so.6", load_exports("x86_64")["libc.so.6"])))
    assert {(version, default) for name, version, default in made if name == "memcpy"} == {
        ("GLIBC_2.2.5", False),
        ("GLIBC_2.14", True),
    }


def no_glibc(name: str) -> str:
    raise ValueError(name)


@pytest.mark.parametrize("libc", [no_glibc, lambda _: None])
def test_a_system_without_glibc_is_refused_with_the_reason(libc: Callable[[str], str | None]) -> None:
    with pytest.raises(EnvironmentLacksError, match="the C library is not glibc"):
        find_link_stubs("x86_64", libc)


def test_a_cpu_without_a_table_is_refused() -> None:
    with pytest.raises(EnvironmentLacksError, match="nothing can be linked for riscv64"):
        find_link_stubs("riscv64", lambda _: "glibc 2.36")


def test_each_library_of_the_table_has_a_stub(tmp_path: Path) -> None:
    find_link_stubs("aarch64", lambda _: "glibc 2.36").write(tmp_path / "stubs")
    assert {path.name for path in (tmp_path / "stubs").iterdir()} == set(load_exports("aarch64"))
