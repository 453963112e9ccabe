"""Libraries made by real compilers: those of a build pass every check, spoiled ones do not, and others agree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hubkernels.abi.installed import Installed
from hubkernels.abi.library import Library, read_library
from hubkernels.abi.rules import Subject, find
from hubkernels.config.abi_policy import load_abi_policy
from hubkernels.host.machine import find_torch, this_machine
from hubkernels.model.backend import CPU
from hubkernels.model.variant import Platform, Variant
from hubkernels.model.version import Version
from tests.conftest import REPOSITORY, Cli, SmallProject, environment

pytest.importorskip("torch", reason="builds take the headers of an installed torch")
oracle = pytest.importorskip("kernel_abi_check", reason="kernel-abi-check is installed in the main environment alone")
pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="the expected tags are those of x86_64; this machine is another"
)

STABLE = Variant(Version((2, 10)), CPU, Platform("x86_64", "linux"), stable_abi=True)
COMPILERS = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))
    for name in ("g++", "clang++")
]

STRESS = """\
#include <dlfcn.h>
#include <sys/stat.h>

#include <charconv>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "kernel.h"

namespace {
bool threads_meet() {
  std::mutex mutex;
  std::condition_variable told;
  bool ready = false;
  std::thread other([&] {
    std::lock_guard lock(mutex);
    ready = true;
    told.notify_all();
  });
  bool met = false;
  {
    std::unique_lock lock(mutex);
    met = told.wait_for(lock, std::chrono::seconds(60), [&] { return ready; });
  }
  other.join();
  return met;
}

bool locks_time_out() {
  std::shared_timed_mutex mutex;
  std::lock_guard lock(mutex);
  return std::async(std::launch::async, [&] {
           return !mutex.try_lock_for(std::chrono::milliseconds(2)) &&
                  !mutex.try_lock_shared_for(std::chrono::milliseconds(2));
         }).get();
}

bool numbers_are_read_and_written(int64_t n) {
  const std::string_view text = "1.5";
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  char buffer[64];
  const auto written = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::ostringstream stream;
  stream << n << 'x';
  return value == 1.5 && std::string_view(buffer, written.ptr - buffer) == "1.5" &&
         std::move(stream).str() == "3x" && std::strtol("12", nullptr, 10) == 12;
}

bool mathematics(double n) {
  const auto near = [](double a, double b) { return std::abs(a - b) < 1e-6 * b; };
  return near(std::pow(2.0, n), 8) && near(std::exp(n), 20.0855369) && near(std::log(n), 1.0986123) &&
         near(expf(float(n)), 20.0855369) && near(powf(2, float(n)), 8);
}

bool files_are_there() {
  struct stat found, link, open;
  return std::filesystem::exists("/proc") && std::filesystem::directory_iterator("/proc/self") !=
                                                 std::filesystem::directory_iterator() &&
         stat("/proc", &found) == 0 && S_ISDIR(found.st_mode) && lstat("/proc/self", &link) == 0 &&
         S_ISLNK(link.st_mode) && fstat(1, &open) == 0;
}

double* volatile kept;  // so that no compiler leaves out the allocation

bool exceptions_are_caught(int64_t size) {
  try {
    kept = new double[size - 4];
  } catch (const std::bad_alloc&) {  // or bad_array_new_length, which is one
    return true;
  }
  return false;
}

bool helpers_of_the_compiler(int64_t n) {  // a division that calls __divti3 of libgcc
  return int64_t((static_cast<__int128>(n) << 70) / (static_cast<__int128>(n) << 68)) == 4;
}

bool once() {
  static std::once_flag flag;
  static int calls = 0;
  for (int i = 0; i < 2; ++i) std::call_once(flag, [] { ++calls; });
  thread_local std::string own = "own";
  return calls == 1 && own == "own" && std::atexit([] {}) == 0;
}
}  // namespace

int64_t answer() {
  volatile int64_t three = 3;  // so that nothing is computed by the compiler
  const int64_t n = three;
  int64_t good = 0;
  good |= int64_t(threads_meet()) << 0;
  good |= int64_t(locks_time_out()) << 1;
  good |= int64_t(numbers_are_read_and_written(n)) << 2;
  good |= int64_t(mathematics(double(n))) << 3;
  good |= int64_t(files_are_there()) << 4;
  good |= int64_t(exceptions_are_caught(n)) << 5;
  good |= int64_t(once()) << 6;
  good |= int64_t(dlopen(nullptr, RTLD_NOW) != nullptr) << 7;
  good |= int64_t(std::random_device{}() != std::random_device{}()) << 8;
  good |= int64_t(*std::make_shared<int64_t>(n) == n) << 9;
  good |= int64_t(helpers_of_the_compiler(n)) << 10;
  return good;
}
"""


def build(project: SmallProject, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hubkernels.cli", "build", "--project", str(project.root)]
    return subprocess.run(command, env=environment(**changes), capture_output=True, text=True, check=False)


def library_of(project: SmallProject) -> Path:
    (library,) = (project.root / "build" / project.name).glob("torch*/*.abi3.so")
    return library


def findings(path: Path, variant: Variant = STABLE) -> list[str]:
    library = read_library(path)
    if isinstance(library, str):
        return [library]
    torch = find_torch()
    assert torch is not None
    return [finding.what for finding in find(Subject(library, variant, load_abi_policy(), Installed(torch.lib)))]


def oracle_says(path: Path) -> list[str]:
    """What kernel-abi-check has against a file."""
    file = oracle.ObjectFile(path)
    return [repr(found) for found in (*file.check_manylinux("manylinux_2_28"), *file.check_python_abi("3.9"))]


def loaded(project: SmallProject, expression: str) -> str:
    """What an expression of the package gives in a fresh process."""
    entry = str(library_of(project).parent / "__init__.py")
    code = (
        "import importlib.util, sys, torch\n"
        f"spec = importlib.util.spec_from_file_location({project.python_name!r}, {entry!r})\n"
        "kernel = importlib.util.module_from_spec(spec)\n"
        "sys.modules[spec.name] = kernel\n"
        "spec.loader.exec_module(kernel)\n"
        f"print({expression})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_all_of_the_standard_library_links_for_the_oldest_system_and_works(
    small: SmallProject, cli: Cli, compiler: str
) -> None:
    (small.root / "cpu/kernel.cpp").write_text(STRESS)
    done = build(small, CXX=compiler)
    assert done.returncode == 0, done.stderr
    library = library_of(small)
    assert findings(library) == []
    assert oracle_says(library) == []
    ran = cli("check", "abi", "--project", small.root)
    assert (ran.code, ran.out.split()[:4]) == (0, ["ok", "abi", "my-kernel", f"{STABLE.tag}:"])
    assert f"tables of {load_abi_policy().date}" in ran.out
    assert loaded(small, "kernel.answer()") == str(2**11 - 1)


@pytest.mark.skipif(this_machine().platform.cpu != "x86_64", reason="the question is one about x86-64")
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_compilers_own_probe_of_the_processor_links(small: SmallProject, compiler: str) -> None:
    probe = '#include "kernel.h"\nint64_t answer() { return __builtin_cpu_supports("sse2") ? 7 : 8; }\n'
    (small.root / "cpu/kernel.cpp").write_text(probe)
    done = build(small, CXX=compiler)
    assert done.returncode == 0, done.stderr
    assert loaded(small, "kernel.answer()") == "7"


def machine_paths(project: SmallProject) -> set[str]:
    torch = find_torch()
    assert torch is not None
    home = os.path.expanduser("~")  # noqa: PTH111 - as users see it
    return {str(project.root), str(torch.root), str(torch.root.parent), str(REPOSITORY), f"{home}/", sys.prefix}


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_path_of_this_machine_is_in_the_bytes(small: SmallProject, compiler: str) -> None:
    """Neither in debug information nor in ``__FILE__``, of the project and of torch's headers."""
    text = (small.root / "build.toml").read_text()
    (small.root / "build.toml").write_text(text.replace("[kernel.cpu]", '[kernel.cpu]\ncxx-flags = ["-g"]'))
    kernel = small.root / "cpu/kernel.cpp"
    kernel.write_text(
        "#include <stdexcept>\n"
        + kernel.read_text().replace("return", "if (calls() > 9) throw std::runtime_error(__FILE__);\n  return")
    )
    done = build(small, CXX=compiler)
    assert done.returncode == 0, done.stderr
    content = library_of(small).read_bytes()
    assert b"cpu/kernel.cpp" in content
    assert b"torch/include/torch/csrc/stable" in content, "torch's headers name their files"
    assert [path for path in machine_paths(small) if path.encode() in content] == []


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_symbol_is_one_for_the_whole_process(small: SmallProject, compiler: str) -> None:
    """A static local of an inline function that others see: g++ makes such a symbol of it when it may."""
    kernel = small.root / "cpu/kernel.cpp"
    kernel.write_text(kernel.read_text().replace("inline", '[[gnu::visibility("default")]] inline'))
    assert build(small, CXX=compiler).returncode == 0
    library = read_library(library_of(small))
    assert isinstance(library, Library)
    assert library.unique == ()


OPENMP = """\
#include <omp.h>

#include "kernel.h"

int64_t answer() {
  int64_t sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int i = 0; i < 1000; ++i) sum += i;
  return sum + (omp_get_max_threads() > 0);
}
"""


def test_openmp_is_the_one_that_torch_brings(small: SmallProject) -> None:
    torch = find_torch()
    assert torch is not None
    needs = read_library(torch.lib / "libtorch_cpu.so")
    assert isinstance(needs, Library)
    assert "libgomp.so.1" in needs.needed
    (small.root / "cpu/kernel.cpp").write_text(OPENMP)
    text = (small.root / "build.toml").read_text()
    (small.root / "build.toml").write_text(text.replace("[kernel.cpu]", '[kernel.cpu]\ncxx-flags = ["-fopenmp"]'))
    done = build(small, CXX="g++")
    assert done.returncode == 0, done.stderr
    library = read_library(library_of(small))
    assert isinstance(library, Library)
    assert "libgomp.so.1" in library.needed
    assert findings(library_of(small)) == []
    count = "len({line.split()[-1] for line in open('/proc/self/maps') if 'gomp' in line or 'libomp' in line})"
    assert loaded(small, f"(kernel.answer(), {count})") == "(499501, 1)"


@pytest.mark.skipif(shutil.which("clang++") is None, reason="clang++ is not installed")
def test_openmp_of_clang_is_refused_with_the_way_out(small: SmallProject) -> None:
    without_header = OPENMP.replace("#include <omp.h>\n", "").replace(" + (omp_get_max_threads() > 0)", "")
    (small.root / "cpu/kernel.cpp").write_text(without_header)
    text = (small.root / "build.toml").read_text()
    (small.root / "build.toml").write_text(text.replace("[kernel.cpu]", '[kernel.cpu]\ncxx-flags = ["-fopenmp"]'))
    done = build(small, CXX="clang++")
    assert done.returncode == 1
    assert "no needed library provides __kmpc_fork_call\n  --> cpu/kernel.cpp\n  hint: clang's OpenMP" in done.stderr


def test_libraries_are_named_only_where_they_are_used(small: SmallProject) -> None:
    assert build(small).returncode == 0
    library = read_library(library_of(small))
    assert isinstance(library, Library)
    always = {"libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libtorch_cpu.so", "libtorch.so", "libc10.so"}
    assert set(library.needed) == always


FULL_BINDING = """\
#include <stdexcept>
#include <torch/library.h>

#include "registration.h"

int64_t answer() {
  try {
    TORCH_CHECK(false, "inside");
  } catch (const c10::Error&) {  // thrown by libc10.so, caught here
  }
  throw std::invalid_argument("thrown here");  // caught by torch
}

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("answer() -> int", &answer); }

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


def test_exceptions_cross_to_torch_and_back(small: SmallProject) -> None:
    (small.root / "torch-ext/binding.cpp").write_text(FULL_BINDING)
    text = (small.root / "build.toml").read_text()
    (small.root / "build.toml").write_text(text.replace('stable-abi = "2.10"\n', "").replace('"cpu/kernel.cpp", ', ""))
    done = build(small)
    assert done.returncode == 0, done.stderr
    assert oracle_says(library_of(small)) == []
    assert "ValueError: thrown here" in loaded(small, "kernel.answer()")


SPOILED = {
    "a function of glibc 2.34": ('extern "C" int close_range(unsigned, unsigned, int);', "close_range(0, 0, 0)", ""),
    "a function of GLIBCXX 3.4.26": ("#include <filesystem>", 'std::filesystem::exists("/")', ""),
    "a Python function of 3.10": (
        'extern "C" int PyModule_AddObjectRef(void*, const char*, void*);',
        "PyModule_AddObjectRef(0, 0, 0)",
        "",
    ),
    "no limited API": ('extern "C" void** _PyObject_GetDictPtr(void*);', "_PyObject_GetDictPtr(0) != 0", ""),
}
"""Code that kernel-abi-check has something against too: what comes before a function, its body, flags."""

ONLY_OURS = {
    "a search path": (("", "0", "-Wl,-rpath,/opt/lib"), "has the search path /opt/lib"),
    "an executable stack": (("", "0", "-Wl,-z,execstack"), "asks for an executable stack"),
    "code that can be written": (
        (r'asm(".section hk,\"awx\",@progbits\n.byte 0\n.previous");', "0", ""),
        "has a segment that is writable and executable",
    ),
    "a thread-local variable in the program's room": (
        ('__attribute__((tls_model("initial-exec"))) __thread int count;', "++count", ""),
        "has thread-local variables in the room that a process has for those of its program",
    ),
    "a mark for newer processors": (("", "0", "-march=x86-64-v3 -mneeded"), "x86-64-v3 only: others do not load it"),
    "a GNU unique symbol": (
        ("inline int& calls() { static int count; return count; }", "calls()++", ""),
        "_ZZ5callsvE5count is one for the whole process",
    ),
    "an undefined symbol": (("void nowhere(int);", "(nowhere(1), 0)", ""), "no needed library provides _Z7nowherei"),
    "a library not everywhere": (("", "0", "-Wl,--no-as-needed -l:libcrypt.so.1"), "needs the library libcrypt.so.1"),
    "C++ of torch": (
        ("namespace at { int get_num_threads(); }", "at::get_num_threads()", "{torch}"),
        "_ZN2at15get_num_threadsEv is no part of torch's stable ABI",
    ),
    "a newer C shim": (
        ('extern "C" int torch_from_blob();', "torch_from_blob()", "{torch}"),
        "torch_from_blob is in torch's C shim only from 2.11 on",
    ),
}
"""Code that breaks rules which kernel-abi-check does not have."""


def spoil(folder: Path, how: tuple[str, str, str]) -> Path:
    before, body, flags = how
    torch = find_torch()
    assert torch is not None
    source, library = folder / "spoiled.cpp", folder / "spoiled.abi3.so"
    source.write_text(f'{before}\nextern "C" int spoiled() {{ return {body}; }}\n')
    words = flags.replace("{torch}", f"-L{torch.lib} -Wl,--no-as-needed -ltorch_cpu").split()
    subprocess.run(
        ["g++", "-std=c++17", "-shared", "-fPIC", "-O1", str(source), "-o", str(library), *words], check=True
    )
    return library


@pytest.mark.parametrize("how", SPOILED.values(), ids=SPOILED)
def test_what_kernel_abi_check_refuses_is_refused(tmp_path: Path, how: tuple[str, str, str]) -> None:
    library = spoil(tmp_path, how)
    assert oracle_says(library) != []
    assert findings(library) != []


@pytest.mark.parametrize(("how", "what"), ONLY_OURS.values(), ids=ONLY_OURS)
def test_what_else_is_wrong_is_found(tmp_path: Path, how: tuple[str, str, str], what: str) -> None:
    library = spoil(tmp_path, how)
    assert oracle_says(library) == []
    (only,) = findings(library)
    assert what in only


def test_a_plain_library_has_nothing_against_it(tmp_path: Path) -> None:
    library = spoil(tmp_path, ("", "0", ""))
    assert (findings(library), oracle_says(library)) == ([], [])


def test_a_library_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    library = spoil(tmp_path, ("#include <string>", 'int(std::string("x").size())', ""))
    content = library.read_bytes()
    for size in range(1, len(content), len(content) // 40):
        library.write_bytes(content[:size])
        assert len(findings(library)) == 1, size


def test_a_library_that_is_overwritten_anywhere_ends_in_words(tmp_path: Path) -> None:
    library = spoil(tmp_path, ("#include <string>", 'int(std::string("x").size())', ""))
    content = library.read_bytes()
    for at in range(4, len(content), len(content) // 60):
        library.write_bytes(content[:at] + bytes(16) + content[at + 16 :])
        findings(library)
        library.write_bytes(content[:at] + b"\xff" * 16 + content[at + 16 :])
        findings(library)


BAD = """\
#include "kernel.h"

extern "C" int close_range(unsigned, unsigned, int);
namespace hk {
void nowhere(int);
}

int64_t answer() {
  hk::nowhere(1);
  return close_range(3, 2, 0);
}
"""


def test_a_build_whose_library_would_not_load_elsewhere_publishes_nothing(small: SmallProject, cli: Cli) -> None:
    (small.root / "cpu/kernel.cpp").write_text(BAD)
    ran = cli("build", "--project", small.root)
    assert ran.code == 1
    assert "close_range needs GLIBC_2.34; the limit is GLIBC_2.28\n  --> cpu/kernel.cpp\n  hint: do without" in ran.err
    assert (
        "no needed library provides _ZN2hk7nowhereEi\nhk::nowhere(int)\n  --> cpu/kernel.cpp\n  hint: name" in ran.err
    )
    assert not (small.root / "build/my-kernel").exists()
    again = cli("build", "--project", small.root)
    assert again.code == 1, "nor the second time, when nothing is compiled"
    assert again.err.partition("error:")[1:] == ran.err.partition("error:")[1:], "and it says the same"
    small.write()
    assert cli("build", "--project", small.root).code == 0


def test_check_abi_names_what_is_wrong_and_the_table(small: SmallProject, cli: Cli, tmp_path: Path) -> None:
    assert build(small).returncode == 0
    shutil.copyfile(spoil(tmp_path, SPOILED["a function of glibc 2.34"]), library_of(small))
    ran = cli("check", "abi", "--project", small.root)
    assert ran.code == 1
    assert f"error: {small.op_id}.abi3.so: close_range needs GLIBC_2.34 of libc.so.6" in ran.err
    assert f"\n  --> {STABLE.tag}\n  hint: do without it, or bring a copy" in ran.err
    ran = cli("check", "abi", "--project", small.root, "--json")
    assert ran.code == 1
    assert '"what": "close_range needs GLIBC_2.34 of libc.so.6' in ran.out


def test_the_same_objects_link_to_the_same_bytes_in_another_run(small: SmallProject, tmp_path: Path) -> None:
    made = []
    for name in ("cache", "another cache with späces"):
        shutil.rmtree(small.root / "build", ignore_errors=True)
        assert build(small, HUBKERNELS_CACHE=str(tmp_path / name)).returncode == 0
        made.append((small.op_id, library_of(small).read_bytes()))
    assert made[0] == made[1]
    assert this_machine().platform.cpu == "x86_64"
