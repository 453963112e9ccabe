"""What this machine has for building CPU kernels, what it lacks, and what to install."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path

from hubkernels.build.cache import find_cache
from hubkernels.build.places import WORK
from hubkernels.check import cuda
from hubkernels.check.finding import Finding
from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.host.cpu import CPUINFO, cpu_features
from hubkernels.host.disk import allows_programs, free_bytes
from hubkernels.host.files import FileHashes, read_regular
from hubkernels.host.machine import find_torch, python_include, require_torch, this_machine
from hubkernels.host.process import run
from hubkernels.model.isa import usable_isas
from hubkernels.model.sdk import LOCK, read_lock
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import Compiler, compiler_environment, find_compiler
from hubkernels.toolchain.nvcc import Nvcc, find_nvcc

CLIENT = (Version((0, 17, 2)), Version((0, 18)))
"""The stock client that checks load artifacts with: from the first of these on, below the second."""

ENOUGH_DISK = 1 << 30


@dataclass(frozen=True)
class Surroundings:
    """What the examination looks at. build: folder that builds write to. cpuinfo: what Linux tells of the processor."""

    environment: Mapping[str, str]
    temp: Path
    build: Path
    cpuinfo: Path = CPUINFO

    @cached_property
    def compiler(self) -> Compiler | EnvironmentLacksError:
        """The one that a build takes, or why there is none."""
        hashes = FileHashes(self.build / WORK / "hashes.json")
        try:
            return find_compiler(compiler_environment(self.environment), hashes)
        except EnvironmentLacksError as error:
            return error

    @property
    def pinned_cuda(self) -> tuple[str, ...]:
        """Releases of CUDA that the project pins. A lock that cannot be read is told of by the verbs that need it."""
        lock = self.build.parent / LOCK
        try:
            return tuple(str(s.name.version) for s in read_lock(read_regular(lock), str(lock)) if s.name.kind == "cuda")
        except (OSError, InputError):
            return ()

    @cached_property
    def nvcc(self) -> Nvcc | None:
        return find_nvcc(self.environment)


def examine(around: Surroundings) -> tuple[Finding, ...]:
    """Look at everything that a build, a check or a benchmark on the CPU needs; changes nothing."""
    return tuple(look(around) for look in EXAMINATIONS)


def can_build(findings: Iterable[Finding]) -> bool:
    return not any(finding.needed and finding.state == "missing" for finding in findings)


def _command(around: Surroundings) -> Finding:
    """Upstream's builder has the same name, so the first one on PATH may not be ours."""
    path = shutil.which("kernel-builder", path=around.environment.get("PATH"))
    if path is None:
        hint = "activate the environment that has it, or call `python -m hubkernels.cli`"
        return Finding("command", "warning", "no kernel-builder on PATH", hint)
    try:
        said = run((path, "--version"), timeout_s=30).output.strip()
    except EnvironmentLacksError as error:
        return Finding("command", "warning", str(error), "call `hubkernels`: it is the same command")
    if said.startswith("hubkernels "):
        return Finding("command", "ok", f"{path}: {said.partition(':')[0]}")
    text = f"{path} comes first on PATH and is another program: {said.partition(chr(10))[0] or 'it tells no version'}"
    return Finding("command", "warning", text, "call `hubkernels`: it is the same command as our kernel-builder")


def _python(_: Surroundings) -> Finding:
    version = platform.python_version()
    try:
        return Finding("python", "ok", f"{version}, headers in {python_include()}", needed=True)
    except EnvironmentLacksError as error:
        return _missing("python", error, apt=("python3-dev",))


def _compiler(around: Surroundings) -> Finding:
    compiler = around.compiler
    if isinstance(compiler, EnvironmentLacksError):
        return _missing("compiler", compiler, apt=() if around.environment.get("CXX") else ("g++",))
    text = f"{compiler} ({' '.join(compiler.command)}), fingerprint {compiler.fingerprint[:12]}"
    return Finding("compiler", "ok", text, needed=True)


def _torch(_: Surroundings) -> Finding:
    """Builds do without: they take headers by toolchain.lock. Loading a kernel does not."""
    try:
        torch = require_torch(this_machine())
    except EnvironmentLacksError as error:
        (problem,) = error.problems
        hint = f"builds take its headers by toolchain.lock; to load kernels here, {problem.hint}"
        return Finding("torch", "warning", problem.what, hint)
    return Finding("torch", "ok", f"{torch.release} ({torch.root})")


def _ninja(_: Surroundings) -> Finding:
    try:
        import ninja  # noqa: PLC0415 - its absence is a finding
    except ImportError:
        return Finding("ninja", "missing", "not installed", "pip install ninja", needed=True, pip=("ninja",))
    program = Path(ninja.BIN_DIR) / "ninja"
    try:
        done = run((program, "--version"), timeout_s=30)
    except EnvironmentLacksError as error:
        return _missing("ninja", error, pip=("ninja",))
    return Finding("ninja", "ok", f"{done.output.strip()} ({program})", needed=True)


def _client(_: Surroundings) -> Finding:
    oldest, below = CLIENT
    wanted = f"kernels>={oldest},<{below}"
    try:
        found = metadata.version("kernels")
    except metadata.PackageNotFoundError:
        hint = "`check load`, `check parity` and `bench` use it"
        return Finding("client", "missing", "kernels, the stock client, is not installed", hint, pip=(wanted,))
    try:
        fits = oldest <= Version.parse(found) < below
    except ValueError:  # a pre-release
        fits = False
    if fits:
        return Finding("client", "ok", f"kernels {found}")
    return Finding("client", "warning", f"kernels {found} is not one that was tried", f"tried: {wanted}", pip=(wanted,))


def _git(around: Surroundings) -> Finding:
    path = shutil.which("git", path=around.environment.get("PATH"))
    if path is None:
        return Finding("git", "warning", "no git on PATH: builds note no commit", "install it", apt=("git",))
    return Finding("git", "ok", path)


def _disk(around: Surroundings) -> Finding:
    free = free_bytes(around.build)
    text = f"{free / 1e9:.1f} GB free for {around.build}"
    if free < ENOUGH_DISK:
        return Finding(
            "disk", "warning", text, "free some space, or empty the cache with `kernel-builder clean --cache`"
        )
    return Finding("disk", "ok", text)


def _cache(around: Surroundings) -> Finding:
    cache = find_cache(around.environment, around.build / WORK / "cache")
    held = cache.store.usage()
    text = f"{cache.store.folder}: {held.entries} entries, {held.size / 1e9:.2f} of {cache.limit / 1e9:.2f} GB"
    if refusal := cache.why_refused():
        (problem,) = refusal.problems
        return Finding("cache", "warning", problem.what, problem.hint)
    return Finding("cache", "warning", cache.note, text) if cache.note else Finding("cache", "ok", text)


def _temp(around: Surroundings) -> Finding:
    if allows_programs(around.temp):
        return Finding("temp", "ok", str(around.temp))
    text = f"{around.temp} is mounted noexec: no library can be loaded from it"
    return Finding("temp", "warning", text, "set TMPDIR to a folder on another disk")


def _isas(around: Surroundings) -> Finding:
    usable = usable_isas(cpu_features(around.cpuinfo))
    return Finding("cpu", "ok", f"{platform.machine()}: {', '.join((*reversed(usable), 'scalar'))}")


def _cuda(around: Surroundings) -> Finding:
    found = cuda.toolkit(around.nvcc, find_torch(), around.environment)
    pinned = ", ".join(around.pinned_cuda)
    return replace(found, text=f"toolchain.lock pins {pinned}; beside it {found.text}") if pinned else found


def _cuda_host(around: Surroundings) -> Finding:
    compiler = around.compiler
    if isinstance(compiler, EnvironmentLacksError):  # `compiler` tells of it
        return cuda.host_compiler(None, None, ())
    return cuda.host_compiler(around.nvcc, compiler, cuda.older_compilers(compiler, around.environment))


EXAMINATIONS: tuple[Callable[[Surroundings], Finding], ...] = (
    _command,
    _python,
    _compiler,
    _torch,
    _ninja,
    _client,
    _git,
    _disk,
    _cache,
    _temp,
    _isas,
    _cuda,
    _cuda_host,
)


def _missing(
    subject: str, error: EnvironmentLacksError, apt: tuple[str, ...] = (), pip: tuple[str, ...] = ()
) -> Finding:
    problem = error.problems[0]
    text = f"{problem.what} ({problem.where})" if problem.where else problem.what
    return Finding(subject, "missing", text, problem.hint, needed=True, apt=apt, pip=pip)
