"""The variant that is chosen, against the stock client's own choice."""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import Any

import pytest

from hubkernels.runtime.choose import chosen, decide, read_variant, told
from hubkernels.runtime.system import CPU, Device, System, WrongBackendError

HERE = System(Device("cuda", (13, 0)), "x86_64", "linux", (2, 13), cxx11=True)

FRAMEWORKS = [
    *("torch-stable-abi29", "torch-stable-abi210", "torch-stable-abi213", "torch-stable-abi214", "torch-stable-abi30"),
    *("torch212", "torch213", "torch213-cxx11", "torch213-cxx98", "torch214-cxx11", "torch30"),
    *("tvm-ffi01", "tvm-ffi010", "tvm-ffi02", "tvm-ffi1"),
]
BACKENDS = [
    *("cpu", "metal", "neuron", "tpu", "cu126", "cu128", "cu130", "cu132", "cu1210", "rocm71", "rocm72"),
    *("xpu20252", "cann83", "cu1", "cpux", "cuda", "rocm", "npu"),
]
PLATFORMS = ["x86_64-linux", "aarch64-linux", "aarch64-darwin", "x86_64-windows", "x86_64", "a-b-c"]
OTHERS = [
    *("torch-cpu", "torch-cuda", "torch-universal", "torch-npu", "torch-rocm", "torch-foo-bar", "torch-"),
    *("torch-stable-abi", "torch-stable-abi-cpu-x86_64-linux", "tvm-ffi-cpu-x86_64-linux", "README", "", "jax-cpu"),
    *("torch-metal", "torch-tpu", "torch-xpu", "torch-neuron", "torch-cann", "torch213", "torch213-cxx11"),
]
NAMES = ["-".join(parts) for parts in itertools.product(FRAMEWORKS, BACKENDS, PLATFORMS)] + OTHERS

DEVICES = [
    *(CPU, Device("cuda", (13, 0)), Device("cuda", (12, 8)), Device("rocm", (7, 1)), Device("xpu", (2025, 2))),
    *(Device("cann", (8, 3)), Device("metal"), Device("tpu"), Device("neuron")),
]


def systems(chance: random.Random) -> System:
    return System(
        chance.choice(DEVICES),
        chance.choice(["x86_64", "aarch64"]),
        chance.choice(["linux", "linux", "darwin", "windows"]),
        chance.choice([(2, 13), (2, 10), (2, 9), None]),
        cxx11=chance.choice([True, False, None]),
        tvm_ffi=chance.choice([(0, 1), (0, 10), None]),
        macos=chance.choice([(26, 0), (15, 4), (27, 1, 2), None]),
    )


def parse(name: str) -> Any:  # noqa: ANN401 - the client's own
    """None for what the client takes for no variant."""
    try:
        return pytest.importorskip("kernels.variants").parse_variant(name)
    except ValueError:
        return None


def of_client(system: System, names: list[str]) -> list[tuple[str, bool]]:
    """Name and acceptance of each variant, in the client's order."""
    backends = pytest.importorskip("kernels.backends")
    variants = pytest.importorskip("kernels.variants")
    version = pytest.importorskip("packaging.version").Version

    def release(found: tuple[int, ...] | None) -> Any:  # noqa: ANN401
        return None if found is None else version(".".join(map(str, found)))

    kinds = {"cuda": "CUDA", "rocm": "ROCm", "xpu": "XPU", "cann": "CANN", "cpu": "CPU", "metal": "Metal"}
    kind = getattr(
        backends, kinds.get(system.device.name, {"tpu": "TPU", "neuron": "Neuron"}.get(system.device.name, ""))
    )
    device = kind(version=release(system.device.release)) if system.device.release else kind()
    parsed = [found for name in sorted(set(names)) if (found := parse(name))]
    _, trace = variants._resolve_variant_for_system(
        variants=parsed,
        selected_backend=device,
        cpu=system.cpu,
        os=system.os,
        torch_version=release(system.torch),
        torch_cxx11_abi=system.cxx11,
        tvm_ffi_version=release(system.tvm_ffi),
        macos_version=release(system.macos),
    )
    return [(each.variant.variant_str, isinstance(each, variants.VariantAccepted)) for each in trace]


@pytest.mark.parametrize("seed", range(150))
def test_the_choice_is_that_of_the_client(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - any numbers
    names, system = chance.sample(NAMES, 200), systems(chance)
    ours = [(each.variant.name, each.reason is None) for each in decide(names, system)]
    assert ours == of_client(system, names)


def test_every_name_is_read_as_the_client_reads_it() -> None:
    for name in NAMES:
        wanted, found = parse(name), read_variant(name)
        assert (found.name if found else None) == (wanted.variant_str if wanted else None)


def test_a_stable_build_comes_before_an_exact_one_and_the_newest_first() -> None:
    names = [
        "torch213-cxx11-cu130-x86_64-linux",
        "torch-stable-abi210-cu128-x86_64-linux",
        "torch-stable-abi210-cu130-x86_64-linux",
        "torch-stable-abi29-cu130-x86_64-linux",
        "torch-cuda",
    ]
    assert chosen(decide(names, HERE)) == "torch-stable-abi210-cu130-x86_64-linux"
    assert chosen(decide(names[:1] + names[4:], HERE)) == names[0]
    assert chosen(decide(["torch-cpu"], HERE)) is None
    assert chosen(decide([], HERE)) is None


def test_where_the_client_leaves_it_to_chance_the_choice_is_always_the_same() -> None:
    both = ["tvm-ffi01-cpu-x86_64-linux", "torch-cpu"]
    system = dataclasses.replace(HERE, device=CPU, tvm_ffi=(0, 1))
    assert chosen(decide(both, system)) == chosen(decide(both[::-1], system)) == "torch-cpu"


def test_without_the_stable_abi_only_python_is_loaded() -> None:
    names = ["torch-stable-abi210-cu130-x86_64-linux", "torch-cuda"]
    assert chosen(decide(names, dataclasses.replace(HERE, abi3=False))) == "torch-cuda"


def test_each_variant_has_its_reason() -> None:
    names = ["torch-stable-abi214-cu130-x86_64-linux", "torch-cpu", "torch213-cu130-aarch64-linux"]
    assert told(decide(names, HERE)).splitlines() == [
        "torch-stable-abi214-cu130-x86_64-linux: for torch 2.14 and newer; here is 2.13",
        "torch213-cu130-aarch64-linux: for CPU aarch64; this one is x86_64",
        "torch-cpu: for backend cpu; chosen is cuda",
    ]


def test_a_backend_that_torch_does_not_have_is_refused() -> None:
    from hubkernels.runtime.system import _selected  # noqa: PLC0415

    assert _selected("cpu", Device("cuda", (13, 0))) == CPU
    with pytest.raises(WrongBackendError, match="it has: cpu, cuda"):
        _selected("rocm", Device("cuda", (13, 0)))
