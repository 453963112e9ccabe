"""Which variants are chosen, and that each other one has its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hubkernels.build.planner import Planner
from hubkernels.build.select import choose, select
from hubkernels.build.settings import Settings
from hubkernels.build.supply import Programs, Supply
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.host.files import FileHashes
from hubkernels.host.machine import Machine, TorchSdk
from hubkernels.host.store import Store
from hubkernels.model.backend import BACKENDS, CPU, CUDA
from hubkernels.model.project import KernelSection, Package, Requirements, Torch, TorchNoarch, TvmFfi
from hubkernels.model.sdk import LockedSdk, SdkName
from hubkernels.model.variant import Decisions, Platform, Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import Compiler
from hubkernels.toolchain.nvcc import Nvcc
from hubkernels.toolchain.sdk.pinned import Pinned

ROWS = load_variant_table()
LINUX = Platform("x86_64", "linux")
STABLE = "torch-stable-abi210-cpu-x86_64-linux"


def package(framework: Torch | TorchNoarch | TvmFfi | None = None) -> Package:
    return Package(
        name="my-kernel",
        version=1,
        license="MIT",
        backends=(CPU, CUDA),
        framework=framework or Torch(("b.cpp",), stable_abi={"cpu": Version((2, 10))}),
        root=Path(),
        python_source="torch-ext/my_kernel",
        sections=(KernelSection("k", CPU, ("k.cpp",)),),
    )


def machine(torch: str | None = "2.13.0+cpu", platform: Platform = LINUX) -> Supply:
    return Supply(Machine(platform, TorchSdk(torch, Path("torch")) if torch else None))


def with_cuda(programs: Programs, why_none: str | None = None, torch: TorchSdk | None = None) -> Supply:
    return Supply(Machine(LINUX, torch or TorchSdk("2.13.0+cpu", Path("torch"))), None, programs, why_none)


def accepted(decisions: Decisions) -> list[str]:
    return [variant.tag for variant in decisions.accepted]


def reasons(decisions: Decisions, tag: str) -> tuple[str, ...]:
    return next(rejection.reasons for rejection in decisions.rejected if rejection.variant.tag == tag)


def test_a_stable_abi_package_has_one_variant_whatever_newer_torch_is_installed() -> None:
    for torch in ("2.10.0", "2.13.0+cpu", "2.15.0+cu132", "2.16.0a0+git1234"):
        assert accepted(select(package(), ROWS, machine(torch))) == [STABLE]


def test_a_full_abi_package_is_built_for_the_installed_torch_only() -> None:
    decisions = select(package(Torch(("b.cpp",))), ROWS, machine())
    assert accepted(decisions) == ["torch213-cxx11-cpu-x86_64-linux"]
    assert reasons(decisions, "torch212-cxx11-cpu-x86_64-linux") == (
        "needs the headers of torch 2.12, 2.13.0+cpu is installed",
    )


def test_every_variant_is_either_accepted_or_has_a_reason() -> None:
    decisions = select(package(), ROWS, machine())
    assert all(rejection.reasons for rejection in decisions.rejected)
    assert len(decisions.rejected) > 20


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (machine(None), "torch is not installed"),
        (machine("2.9.1"), "the installed torch 2.9.1 is older than 2.10"),
        (
            machine(platform=Platform("aarch64", "linux")),
            "built on x86_64-linux, this machine is aarch64-linux",
        ),
    ],
)
def test_what_the_machine_lacks_is_the_reason(host: Supply, reason: str) -> None:
    assert reasons(select(package(), ROWS, host), STABLE) == (reason,)


def test_a_stable_abi_newer_than_the_installed_torch_has_no_headers() -> None:
    newer = package(Torch(("b.cpp",), stable_abi={"cpu": Version((2, 12))}))
    assert reasons(select(newer, ROWS, machine("2.11.0")), "torch-stable-abi212-cpu-x86_64-linux") == (
        "needs the headers of torch >= 2.12, 2.11.0 is installed",
    )


def test_bounds_of_the_package_are_reasons() -> None:
    bounded = replace(
        package(Torch(("b.cpp",), minver=Version((2, 14)))),
        requirements={"cuda": Requirements(minver=Version((12, 8, 1)), maxver=Version((13,)))},
    )
    decisions = select(bounded, ROWS, machine())
    assert reasons(decisions, "torch213-cxx11-cpu-x86_64-linux") == ("torch.minver is 2.14",)
    assert "general.cuda.minver is 12.8.1" in reasons(decisions, "torch213-cxx11-cu126-x86_64-linux")
    assert "general.cuda.maxver is 13" in reasons(decisions, "torch213-cxx11-cu132-x86_64-linux")
    for tag in ("torch211-cxx11-cu128-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"):
        assert not any("general.cuda" in reason for reason in reasons(decisions, tag))


def test_tvm_ffi_packages_say_that_they_are_not_built_yet() -> None:
    decisions = select(package(TvmFfi()), ROWS, machine())
    assert accepted(decisions) == []
    assert all("tvm-ffi packages are not built yet" in rejection.reasons for rejection in decisions.rejected)


@pytest.mark.parametrize(
    ("torch", "platform"), [("2.13.0+cpu", LINUX), (None, LINUX), ("2.9.0", Platform("riscv64", "plan9"))]
)
def test_python_alone_has_one_variant_a_backend_on_any_machine(torch: str | None, platform: Platform) -> None:
    noarch = replace(package(TorchNoarch()), backends=(CUDA, BACKENDS["cann"], CPU))
    decisions = select(noarch, ROWS, machine(torch, platform))
    assert accepted(decisions) == ["torch-cpu", "torch-cuda", "torch-npu"]  # npu: what the client calls cann's
    assert reasons(decisions, "torch-tpu") == ("general.backends does not name tpu",)
    assert len(decisions.accepted) + len(decisions.rejected) == len(BACKENDS)


def test_undeclared_backends_and_missing_toolchains_are_told_apart() -> None:
    decisions = select(package(Torch(("b.cpp",))), ROWS, machine())
    assert reasons(decisions, "torch213-cxx11-rocm72-x86_64-linux") == (
        "general.backends does not name rocm",
        "this hubkernels has no rocm toolchain (it has cpu, cuda)",
    )


CU130 = "torch-stable-abi210-cu130-x86_64-linux"
CUDA_PACKAGE = replace(
    package(Torch(("b.cpp",), stable_abi={"cuda": Version((2, 10))})),
    backends=(CUDA,),
    sections=(KernelSection("k", CUDA, ("k.cu",), archs=("8.0", "9.0a", "12.0+PTX")),),
)


def devices(
    release: str = "13.0", codes: frozenset[str] = frozenset({"80", "90", "120"}), gxx: str = "12.2", newest: int = 15
) -> Programs:
    nvcc = Nvcc("/opt/cuda/bin/nvcc", Version.parse(release), "first on PATH", {"g++": newest})
    compiler = Compiler(("/usr/bin/g++",), "g++", Version.parse(gxx), "hash", {})
    return Programs(lambda: nvcc, lambda _: nvcc, lambda _: codes, lambda: compiler)


def test_a_variant_for_cuda_is_built_where_nvcc_is_of_just_its_release() -> None:
    decisions = select(CUDA_PACKAGE, ROWS, with_cuda(devices()))
    assert accepted(decisions) == [CU130]
    assert reasons(decisions, "torch-stable-abi210-cu132-x86_64-linux") == (
        "needs nvcc 13.2; /opt/cuda/bin/nvcc is nvcc 13.0",
    )


@pytest.mark.parametrize(
    ("here", "reason"),
    [
        (with_cuda(Programs()), "there is no nvcc in CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda"),
        (with_cuda(Programs(none_installed="CUDA_HOME names another folder")), "CUDA_HOME names another folder"),
        (with_cuda(devices(codes=frozenset({"80", "90"}))), "this compiler does not know sm_120"),
        (
            with_cuda(devices(gxx="16.1")),
            "g++ 16.1 is too new for nvcc 13.0, which accepts g++ up to 15: name an older one, CXX=g++-15",
        ),
        (with_cuda(devices(), "sanitizers look elsewhere"), "sanitizers look elsewhere"),
    ],
)
def test_what_is_lacking_for_cuda_is_the_reason(here: Supply, reason: str) -> None:
    assert reasons(select(CUDA_PACKAGE, ROWS, here), CU130) == (reason,)


def test_who_plans_without_an_nvcc_is_told_why_there_is_none_as_well(tmp_path: Path) -> None:
    """It used to be told to name a folder with CUDA_HOME, also where that names one without an nvcc."""
    here = Machine(LINUX, TorchSdk("2.13.0+cpu", Path("torch")))
    hashes, around = FileHashes(tmp_path / "hashes.json"), {"CUDA_HOME": str(tmp_path), "PATH": ""}
    planner = Planner(here, around, Settings(jobs=1), hashes, Store(tmp_path / "store"))
    variant = Variant(Version((2, 10)), CUDA, LINUX, Version((13, 0)), stable_abi=True)
    with pytest.raises(EnvironmentLacksError, match=f"no nvcc runs in the bin of {tmp_path}, which CUDA_HOME names"):
        planner._toolkit(variant)


def test_nvcc_is_not_looked_for_where_the_package_is_not_for_cuda() -> None:
    def never(*_: object) -> None:
        raise AssertionError("it was looked for")

    other = replace(package(), backends=(CPU,))
    assert accepted(select(other, ROWS, with_cuda(Programs(never, never, never, never)))) == [STABLE]  # type: ignore[arg-type]


def test_the_cpp_abi_for_cuda_wants_a_torch_for_that_cuda() -> None:
    full = replace(CUDA_PACKAGE, framework=Torch(("b.cpp",)))
    tag = "torch213-cxx11-cu130-x86_64-linux"
    assert reasons(select(full, ROWS, with_cuda(devices())), tag) == (
        "needs ATen/cuda of a torch for CUDA 13.0; 2.13.0+cpu is built without CUDA",
    )
    fitting = TorchSdk("2.13.0+cu130", Path("torch"), "cuda", Version((13, 0)))
    assert accepted(select(full, ROWS, with_cuda(devices(), torch=fitting))) == [tag]
    other = TorchSdk("2.13.0+cu132", Path("torch"), "cuda", Version((13, 2)))
    assert reasons(select(full, ROWS, with_cuda(devices(), torch=other)), tag) == (
        "needs a torch for CUDA 13.0; 2.13.0+cu132 is built with CUDA 13.2",
    )


def test_a_wanted_variant_that_does_not_exist_is_refused_with_its_likeness() -> None:
    decisions = select(package(), ROWS, machine())
    with pytest.raises(
        InputError, match=f"has no variant torch-stable-abi210-cpu-x86_64\n  hint: did you mean {STABLE}?"
    ):
        choose(decisions, package(), ["torch-stable-abi210-cpu-x86_64"])


def test_a_wanted_variant_that_was_rejected_is_refused_with_the_reasons() -> None:
    decisions = select(package(), ROWS, machine())
    with pytest.raises(InputError, match="torch213-cxx11-cu130-x86_64-linux is not built here\n  - there is no nvcc"):
        choose(decisions, package(), ["torch213-cxx11-cu130-x86_64-linux"])


def test_when_nothing_is_left_what_comes_nearest_tells_what_the_machine_lacks() -> None:
    with pytest.raises(EnvironmentLacksError) as caught:
        choose(select(package(), ROWS, machine(None)), package())
    assert str(caught.value).splitlines()[:2] == [
        "no variant of my-kernel can be built here",
        "  - torch is not installed",
    ]


def test_when_the_package_itself_rules_out_every_variant_the_input_is_wrong() -> None:
    empty = replace(package(Torch()), sections=())
    with pytest.raises(InputError, match="no sources: torch.src is empty and no kernel section has backend cpu"):
        choose(select(empty, ROWS, machine()), empty)


class FakePins(Pinned):
    """SDKs by kind and version. Of those that are there their folder is known, the others wait."""

    def __init__(self, *waiting: str, there: Mapping[str, Path] | None = None) -> None:
        self.there = {sdk_name(name): folder for name, folder in (there or {}).items()}
        names = [*map(sdk_name, waiting), *self.there]
        super().__init__([LockedSdk(name, (), "") for name in names], lacking=", and toolchain.lock pins none")

    def root(self, name: SdkName) -> Path | None:
        return self.there.get(name)

    def fetch(self, name: SdkName) -> Path:
        raise AssertionError(f"{name} is fetched to decide")


def sdk_name(words: str) -> SdkName:
    kind, version = words.split()
    return SdkName(kind, Version.parse(version), str(LINUX))


def pinned_torch(folder: Path, release: str, cuda: str | None = "13.0") -> Path:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/version.py").write_text(f"__version__ = '{release}'\ncuda: str | None = {cuda and repr(cuda)}\n")
    return folder


def supply(
    *waiting: str,
    there: Mapping[str, Path] | None = None,
    programs: Programs | None = None,
    torch: str | None = None,
) -> Supply:
    """What there is on a machine with these SDKs; without a torch of its own unless one is named."""
    installed = TorchSdk(torch, Path("torch")) if torch else None
    return Supply(Machine(LINUX, installed), FakePins(*waiting, there=there), programs)


def pinned_nvcc(*releases: str, codes: str = "80 90 120", gxx: str = "12.2", machine: str | None = None) -> Programs:
    """nvccs in folders that are called after their releases, and perhaps the machine's own."""

    def nvcc(path: str, release: str) -> Nvcc:
        return Nvcc(path, Version.parse(release), "", {"g++": 15})

    def at(path: str) -> Nvcc | None:
        found = [release for release in releases if path == f"/{release}/nvidia/cu13/bin/nvcc"]
        return nvcc(path, found[0]) if found else None

    compiler = Compiler(("/usr/bin/g++",), "g++", Version.parse(gxx), "hash", {})
    own = nvcc("/opt/cuda/bin/nvcc", machine) if machine else None
    return Programs(lambda: own, at, lambda _: frozenset(codes.split()), lambda: compiler)


CU132 = CU130.replace("cu130", "cu132")
FULL_CU130 = "torch213-cxx11-cu130-x86_64-linux"
FULL_CUDA = replace(CUDA_PACKAGE, framework=Torch(("b.cpp",)))


def test_what_is_pinned_and_not_fetched_is_accepted_by_its_name_alone() -> None:
    """Neither its codes nor the host's compiler count yet, nor are they asked for."""

    def never(*_: object) -> None:
        raise AssertionError("it was looked for")

    programs = Programs(lambda: None, never, never, never)  # type: ignore[arg-type]
    unseen = supply("torch 2.10", "cuda 13.0", "cuda 13.2", programs=programs)
    assert accepted(select(CUDA_PACKAGE, ROWS, unseen)) == [CU130, CU132]


def test_a_full_abi_that_is_pinned_and_not_fetched_is_accepted_by_its_names() -> None:
    for installed in (None, "2.13.0+cpu"):
        waiting = supply("torch 2.13", "cuda 13.0", "cuda-math 13.0", torch=installed)
        assert accepted(select(FULL_CUDA, ROWS, waiting)) == [FULL_CU130]


def test_a_pinned_torch_is_of_just_its_release_and_the_installed_one_the_last_resort() -> None:
    assert accepted(select(package(), ROWS, supply("torch 2.10"))) == [STABLE]
    assert reasons(select(package(), ROWS, supply("torch 2.12")), STABLE) == (
        "torch is not installed, and toolchain.lock pins none",
    )
    assert accepted(select(package(), ROWS, supply("torch 2.12", torch="2.13.0+cpu"))) == [STABLE]
    full = package(Torch(("b.cpp",)))
    both = accepted(select(full, ROWS, supply("torch 2.11", torch="2.13.0+cpu")))
    assert both == ["torch211-cxx11-cpu-x86_64-linux", "torch213-cxx11-cpu-x86_64-linux"]
    assert reasons(select(full, ROWS, supply("torch 2.11", torch="2.13.0+cpu")), both[0].replace("211", "212")) == (
        "needs the headers of torch 2.12, 2.13.0+cpu is installed, and toolchain.lock pins none",
    )


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        (pinned_nvcc("13.0", codes="80 90"), "this compiler does not know sm_120"),
        (
            pinned_nvcc("13.0", gxx="16.1"),
            "g++ 16.1 is too new for nvcc 13.0, which accepts g++ up to 15: name an older one, CXX=g++-15",
        ),
        (
            pinned_nvcc("13.1"),
            "the nvcc 13.0 that toolchain.lock pins does not run, in /13.0/nvidia/cu13: `",
        ),
    ],
)
def test_once_a_pinned_toolkit_is_fetched_it_counts_what_it_can_do(programs: Programs, reason: str) -> None:
    there = supply("torch 2.10", there={"cuda 13.0": Path("/13.0")}, programs=programs)
    (why,) = reasons(select(CUDA_PACKAGE, ROWS, there), CU130)
    assert why.startswith(reason)


def test_toolkits_stand_beside_one_another_each_for_its_own_release() -> None:
    both = {"cuda 13.0": Path("/13.0"), "cuda 13.2": Path("/13.2")}
    pinned = supply("torch 2.10", there=both, programs=pinned_nvcc("13.0", "13.2"))
    assert accepted(select(CUDA_PACKAGE, ROWS, pinned)) == [CU130, CU132]
    mixed = supply("torch 2.10", there={"cuda 13.0": Path("/13.0")}, programs=pinned_nvcc("13.0", machine="13.2"))
    decisions = select(CUDA_PACKAGE, ROWS, mixed)
    assert accepted(decisions) == [CU130, CU132]
    found = [mixed.nvcc(Version((13, minor))) for minor in (0, 2)]
    assert [nvcc.path for nvcc in found if nvcc] == ["/13.0/nvidia/cu13/bin/nvcc", "/opt/cuda/bin/nvcc"]
    assert reasons(decisions, CU130.replace("cu130", "cu126")) == (
        "needs nvcc 12.6; /opt/cuda/bin/nvcc is nvcc 13.2; clang does it, with what "
        "`kernel-builder toolchain lock --variant torch-stable-abi210-cu126-x86_64-linux` pins",
    )


@pytest.mark.parametrize(
    ("release", "cuda", "math", "reason"),
    [
        ("2.13.0+cu130", "13.0", "pinned", None),
        ("2.13.0+cu130", "13.0", "", "needs the headers of the math libraries of CUDA 13.0"),
        ("2.13.0", None, "pinned", "needs ATen/cuda of a torch for CUDA 13.0; 2.13.0 is built without CUDA"),
        ("2.13.0+cu132", "13.2", "pinned", "needs a torch for CUDA 13.0; 2.13.0+cu132 is built with CUDA 13.2"),
    ],
)
def test_the_cpp_abi_wants_math_headers_and_a_torch_for_that_cuda(
    tmp_path: Path, release: str, cuda: str | None, math: str, reason: str | None
) -> None:
    there = {"torch 2.13": pinned_torch(tmp_path, release, cuda), "cuda 13.0": Path("/13.0")}
    more = {"cuda-math 13.0": Path("/math")} if math else {}
    decisions = select(FULL_CUDA, ROWS, supply(there={**there, **more}, programs=pinned_nvcc("13.0")))
    if reason is None:
        assert accepted(decisions) == [FULL_CU130]
    else:
        (why,) = reasons(decisions, FULL_CU130)
        assert why.removesuffix(", and toolchain.lock pins none") == reason


def test_a_machines_toolkit_has_its_own_math_headers(tmp_path: Path) -> None:
    pinned = {"torch 2.13": pinned_torch(tmp_path, "2.13.0+cu130")}
    here = supply(there=pinned, programs=pinned_nvcc(machine="13.0"))
    assert accepted(select(FULL_CUDA, ROWS, here)) == [FULL_CU130]


def test_sanitizers_leave_out_what_is_pinned_too() -> None:
    pinned = Supply(Machine(LINUX, None), FakePins("torch 2.10", "cuda 13.0"), why_none="they look elsewhere")
    assert reasons(select(CUDA_PACKAGE, ROWS, pinned), CU130) == ("they look elsewhere",)


def test_what_a_variant_is_built_with_is_fetched_once_and_tells_whether_it_had_to_be() -> None:
    fetched: list[SdkName] = []

    class Fetching(FakePins):
        def fetch(self, name: SdkName) -> Path:
            fetched.append(name)
            self.there[name] = Path(name.kind)
            return self.there[name]

    waiting = Supply(Machine(LINUX, None), Fetching("torch 2.10", "cuda 13.0", "torch 2.14"))
    chosen = [v for v in select(CUDA_PACKAGE, ROWS, waiting).accepted if isinstance(v, Variant)]
    assert waiting.fetch([*chosen, *chosen])
    assert fetched == [sdk_name("torch 2.10"), sdk_name("cuda 13.0")]
    assert not waiting.fetch(chosen)
