"""Write the ABI tables anew: src/hubkernels/config/abi.toml and src/hubkernels/abi/exports/*.txt.

What it reads, all of it facts that others publish:
  --glibc      a checkout of glibc at the release of the policy: its *.abilist files
  --gcc        CPU=FOLDER: a folder with libstdc++.so.6, libgcc_s.so.1 and libgomp.so.1 of that CPU, of GCC 9 or newer
  --cpython    Misc/stable_abi.toml of CPython
  --torch      torch/csrc/stable/c/shim_function_versions.txt of PyTorch
The version lists are those of the installed auditwheel. Run it with auditwheel, pyelftools and tomli at hand:

  python scripts/abi_tables.py --glibc ~/glibc --gcc x86_64=/usr/lib/x86_64-linux-gnu --gcc aarch64=~/arm64/lib \
      --cpython ~/cpython/Misc/stable_abi.toml --torch ~/pytorch/torch/csrc/stable/c/shim_function_versions.txt
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata, resources
from pathlib import Path

import tomli
from elftools.elf.elffile import ELFFile

SOURCE = Path(__file__).parents[1] / "src/hubkernels"
POLICY = "manylinux_2_28"
KERNEL = "sysdeps/unix/sysv/linux"
GLIBC = {
    "libc": "libc.so.6",
    "libm": "libm.so.6",
    "libmvec": "libmvec.so.1",
    "libpthread": "libpthread.so.0",
    "libdl": "libdl.so.2",
    "librt": "librt.so.1",
}
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
ABILISTS = {"x86_64": (f"{KERNEL}/x86_64/64", f"{KERNEL}/x86_64"), "aarch64": (f"{KERNEL}/aarch64",)}
OPENMP = {
    "GOMP": ["1.0", "2.0", "3.0", "4.0", "4.0.1", "4.5", "5.0"],
    "OMP": ["1.0", "2.0", "3.0", "3.1", "4.0", "4.5", "5.0"],
}
"""The versions of the libgomp.so.1 in the wheels of torch 2.10 to 2.14; no manylinux policy has it."""
REMOVED = {"malloc_get_state", "malloc_set_state"}
"""glibc 2.34 took them out of libc.so.6."""
KINDS = {"F": "f", "D": "o", "T": "t", "STT_FUNC": "f", "STT_GNU_IFUNC": "f", "STT_OBJECT": "o", "STT_TLS": "t"}

Table = Mapping[str, Mapping[str, list[str]]]
"""Library, then "version kind", then names."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glibc", type=Path, required=True)
    parser.add_argument("--gcc", action="append", required=True)
    parser.add_argument("--cpython", type=Path, required=True)
    parser.add_argument("--torch", type=Path, required=True)
    given = parser.parse_args()
    versions = read_auditwheel()
    for cpu, folder in (word.split("=", 1) for word in given.gcc):
        table = {**glibc_table(given.glibc, cpu, versions[cpu]), **gcc_table(Path(folder), versions[cpu])}
        (SOURCE / f"abi/exports/{cpu}.txt").write_text(render_exports(cpu, table), encoding="utf-8")
    text = render_policy(versions, read_python(given.cpython), read_shim(given.torch))
    (SOURCE / "config/abi.toml").write_text(text, encoding="utf-8")


def read_auditwheel() -> dict[str, dict[str, list[str]]]:
    text = resources.files("auditwheel.policy").joinpath("manylinux-policy.json").read_text(encoding="utf-8")
    (policy,) = (entry for entry in json.loads(text) if entry["name"] == POLICY)
    found: dict[str, dict[str, list[str]]] = policy["symbol_versions"]
    wanted = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")
    return {cpu: {name: found[cpu][name] for name in wanted} | OPENMP for cpu in LOADERS}


def allowed(version: str, lists: Mapping[str, list[str]]) -> bool:
    prefix, _, number = version.partition("_")
    return number in lists.get(prefix, ())


def glibc_table(checkout: Path, cpu: str, lists: Mapping[str, list[str]]) -> Table:
    table: dict[str, dict[str, list[str]]] = {}
    for name, soname in {**GLIBC, "ld": LOADERS[cpu]}.items():
        paths = (f"{folder}/{name}.abilist" for folder in ABILISTS[cpu])
        text = "".join(git(checkout, "show", f"HEAD:{path}") for path in git_list(checkout, paths))
        groups: dict[str, list[str]] = defaultdict(list)
        for line in text.splitlines():
            version, symbol, kind, *_ = line.split()
            if kind != "A" and allowed(version, lists) and symbol not in REMOVED:
                groups[f"{version} {KINDS[kind]}"].append(symbol)
        if groups:
            table[soname] = groups
    return table


def git_list(checkout: Path, paths: Iterable[str]) -> list[str]:
    """Those of the paths that the release has: not every CPU has a list of its own for each library."""
    return git(checkout, "ls-tree", "--name-only", "HEAD", *paths).splitlines()


def git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]  # a bare mirror does as well
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def gcc_table(folder: Path, lists: Mapping[str, list[str]]) -> Table:
    return {name: exported(folder / name, lists) for name in ("libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1")}


def exported(path: Path, lists: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """What a library exports in the allowed versions, by version and kind."""
    groups: dict[str, list[str]] = defaultdict(list)
    with path.open("rb") as file:
        elf = ELFFile(file)
        definitions = elf.get_section_by_name(".gnu.version_d")
        names = {definition["vd_ndx"]: next(auxiliary).name for definition, auxiliary in definitions.iter_versions()}
        versions = elf.get_section_by_name(".gnu.version")
        for index, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            number = versions.get_symbol(index)["ndx"]
            version = names.get(number & 0x7FFF, "") if isinstance(number, int) else ""
            kind = KINDS.get(symbol["st_info"]["type"])
            # Each version has a symbol of its own name, which nobody links against.
            if symbol["st_shndx"] != "SHN_UNDEF" and kind and allowed(version, lists) and symbol.name != version:
                groups[f"{version} {kind}"].append(symbol.name)
    return groups


def order(version: str) -> tuple[str, tuple[int, ...]]:
    return re.sub(r"[\d.].*", "", version), tuple(int(number) for number in re.findall(r"\d+", version))


def render_exports(cpu: str, table: Table) -> str:
    lines = [
        f"# What {POLICY} lets a library of {cpu} link against: all that glibc 2.28, libstdc++ and libgcc_s of its",
        "# limits export. Written by scripts/abi_tables.py. f: function, o: object, t: thread-local object.",
    ]
    for soname, groups in table.items():
        lines.append(f"[{soname}]")
        lines += [
            f"{key} {' '.join(sorted(set(groups[key])))}" for key in sorted(groups, key=lambda key: (order(key), key))
        ]
    return "\n".join(lines) + "\n"


def read_python(path: Path) -> dict[str, list[str]]:
    """Functions and data of the stable ABI by the Python that added them."""
    items = tomli.loads(path.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = defaultdict(list)
    for kind in ("function", "data"):
        for name, item in items[kind].items():
            found[item["added"]].append(name)
    return found


def read_shim(path: Path) -> dict[str, list[str]]:
    """Functions of torch's C shim by the torch that added them; older ones are not listed there."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"(\w+): TORCH_VERSION_(\d+)_(\d+)_\d+", line):
            found[f"{match[2]}.{match[3]}"].append(match[1])
    return found


def render_policy(
    versions: Mapping[str, Mapping[str, list[str]]], python: Mapping[str, list[str]], shim: Mapping[str, list[str]]
) -> str:
    parts = [
        "# What a compiled artifact for Linux may need. Written by scripts/abi_tables.py, where [needed] is kept.",
        f'date = "{dt.datetime.now(tz=dt.timezone.utc).date()}"',
        f'policy = "{POLICY}"',
        f'auditwheel = "{metadata.version("auditwheel")}"',
        "",
        NEEDED,
    ]
    for cpu, lists in versions.items():
        parts += [f"[versions.{cpu}]", *(f"{name} = {json.dumps(numbers)}" for name, numbers in lists.items()), ""]
    parts += ["# The stable ABI of Python: names by the release that added them.", "[python]", *by_version(python), ""]
    parts += [
        "# The C shim of torch: names by the release that added them, from 2.10 on.",
        "[torch]",
        *by_version(shim),
    ]
    return "\n".join(parts) + "\n"


def by_version(names: Mapping[str, list[str]]) -> Iterator[str]:
    for version in sorted(names, key=order):
        yield f'"{version}" = ['
        line = "   "
        for name in sorted(names[version]):
            if len(line) + len(name) > 112:  # noqa: PLR2004 - width of the file
                yield line
                line = "   "
            line += f' "{name}",'
        yield line
        yield "]"


NEEDED = """\
# Libraries that an artifact may name in DT_NEEDED.
# system: in every manylinux_2_28 system. torch: what a kernel finds in the process because torch loaded it.
# libgomp is torch's: libtorch_cpu.so needs it under this name and brings it along in torch/lib, so it is there before
# any kernel and a second one is not loaded. libtorch_python.so is not here: it is tied to one Python.
[needed]
system = [
    "libc.so.6", "libm.so.6", "libmvec.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1",
    "libstdc++.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
]
torch = ["libtorch.so", "libtorch_cpu.so", "libc10.so", "libgomp.so.1"]
cuda = ["libtorch_cuda.so", "libc10_cuda.so", "libcudart.so.12", "libcudart.so.13", "libcuda.so.1"]
rocm = ["libtorch_hip.so", "libc10_hip.so", "libamdhip64.so.6", "libamdhip64.so.7"]
xpu = ["libtorch_xpu.so", "libc10_xpu.so", "libsycl.so.8", "libsycl.so.9"]
"""

if __name__ == "__main__":
    main()
