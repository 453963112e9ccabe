"""Whether the CUDA toolkit of this machine fits its torch and its host compiler: the rules of `doctor`.

A CPU build needs none of it, so nothing here is worse than a warning.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from hubkernels.check.finding import Finding
from hubkernels.host.machine import TorchSdk
from hubkernels.toolchain.compiler import Compiler
from hubkernels.toolchain.nvcc import Nvcc, named_toolkit, why_no_nvcc

_OLDEST_LOOKED_FOR = 9


def toolkit(nvcc: Nvcc | None, torch: TorchSdk | None, environment: Mapping[str, str]) -> Finding:
    """nvcc beside torch: another major release builds nothing that this torch loads, another minor one does."""
    if nvcc is None:
        return _no_nvcc(torch, environment)
    found = f"nvcc {nvcc.release} ({nvcc.path}, found {nvcc.why})"
    if torch is None:
        return Finding("cuda", "ok", f"{found}; no torch to hold it against")
    if torch.cuda is None:
        return _cpu_torch(found, torch)
    both = f"{found}, torch {torch.release} is built with CUDA {torch.cuda}"
    if nvcc.release.parts[0] != torch.cuda.parts[0]:
        hint = f"set CUDA_HOME to a toolkit {torch.cuda.parts[0]}.x, or install a torch for CUDA {nvcc.release}"
        return Finding("cuda", "warning", f"{both}: another major release", hint)
    minor = "" if nvcc.release == torch.cuda else ": another minor release, which works"
    return Finding("cuda", "ok", both + minor)


def _no_nvcc(torch: TorchSdk | None, environment: Mapping[str, str]) -> Finding:
    """Which of the ways to have none this is."""
    cuda = torch.cuda if torch else None
    if named_toolkit(environment):
        return Finding(
            "cuda", "warning", why_no_nvcc(environment), "no other is taken in its stead: unset it, or name a toolkit"
        )
    if torch is None or cuda is None:
        return Finding("cuda", "ok", "no nvcc, and no torch with CUDA: CPU kernels only")
    text = f"no nvcc, though torch {torch.release} is built with CUDA {cuda}"
    if environment.get("CONDA_PREFIX"):
        hint = f"conda's torch brings no compiler: conda install -c nvidia cuda-nvcc={cuda}"
        return Finding("cuda", "warning", text, hint)
    hint = f"install a CUDA {cuda} toolkit, and set CUDA_HOME where it is not on PATH"
    return Finding("cuda", "warning", f"{text}: CUDA_HOME is unset, and none is on PATH", hint)


def _cpu_torch(found: str, torch: TorchSdk) -> Finding:
    text = f"{found}, torch {torch.release} is a CPU build"
    if any(part.startswith("pip-build-env") for part in torch.root.parts):  # made by pip for one build
        hint = "pip chose it for this one build: pip install --no-build-isolation takes the torch that you have"
        return Finding("cuda", "warning", f"{text} ({torch.root})", hint)
    return Finding("cuda", "ok", text)


def host_compiler(nvcc: Nvcc | None, compiler: Compiler | None, others: Sequence[str]) -> Finding:
    """The host compiler beside what nvcc accepts. others: older ones on PATH, newest first, such as ``g++-13``."""
    subject = "cuda host"
    if nvcc is None or compiler is None:
        return Finding(subject, "ok", "nothing to hold together")
    newest = nvcc.newest_host.get(compiler.family)
    if newest is None:
        return Finding(subject, "ok", f"not known which {compiler.family} nvcc {nvcc.release} accepts")
    rule = f"nvcc {nvcc.release} accepts {compiler.family} up to {newest}"
    if compiler.version.parts[0] <= newest:
        return Finding(subject, "ok", f"{rule}, {compiler} is here")
    fitting = next((name for name in others if _major(name) <= newest), None)
    hint = f"CXX={fitting}" if fitting else f"install {_program(compiler.family)}-{newest}, and set CXX to it"
    return Finding(subject, "warning", f"{rule}, {compiler} is newer", hint)


def older_compilers(compiler: Compiler, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Compilers of the same family on PATH that have their major release in their name, newest first."""
    program = _program(compiler.family)
    majors = range(compiler.version.parts[0] - 1, _OLDEST_LOOKED_FOR - 1, -1)
    names = (f"{program}-{major}" for major in majors)
    return tuple(name for name in names if shutil.which(name, path=environment.get("PATH")))


def _program(family: str) -> str:
    return "g++" if family == "g++" else "clang++"


def _major(name: str) -> int:
    return int(name.rpartition("-")[2])
