"""Parity and benchmarks of real artifacts in fresh processes, and what becomes of a kernel that misbehaves there."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hubkernels.bench.record import Record
from hubkernels.bench.run import BenchCell, Settings, run_cell
from hubkernels.build.report import Begun, Event
from hubkernels.check.client import run_in_fresh_process
from hubkernels.check.load import LOAD
from hubkernels.check.parity import check_parity
from hubkernels.config import load_project
from hubkernels.errors import CheckFailedError, EnvironmentLacksError, InputError
from hubkernels.model.backend import CPU
from hubkernels.model.going import Going
from hubkernels.model.project import Package, TorchNoarch
from tests.conftest import CPU_VARIANT, Cli, SmallProject, environment

pytest.importorskip("kernels", reason="the stock client is not installed")
pytest.importorskip("torch", reason="kernels are loaded into an installed torch")

TIMEOUT_S = 120.0

DOUBLE_CASE = """\
import torch
from hubkernels.check.opcase import OpCase, Peer, Tolerance

def fails(x):
    raise ValueError("not today")

CASE = OpCase(
    op="double",
    shapes={"a few": (5,), "none": (0,)},
    bench_shapes=("a few",),
    dtypes=("float32", "bfloat16"),
    make=lambda shape, dtype, generator: {"x": torch.randn(shape, generator=generator).to(dtype)},
    reference=lambda x: 2 * x,
    gradients=("x",),
    tolerance=lambda shape, dtype, name: Tolerance(0.0, 0.0),
    bytes_moved=lambda shape, dtype, backward: 2 * shape[0] * dtype.itemsize,
    flops=lambda shape, backward: shape[0],
    peers=(Peer("add", lambda x: x + x), Peer("fails", fails), Peer("half", lambda x: x / 2)),
)
"""


class PythonKernel:
    """A kernel of one Python file, as the client takes it, with a case for its op `double`."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "build/double/torch-cpu"
        self.package = Package("double", 1, "Apache-2.0", (CPU,), TorchNoarch(), root, "torch-ext/double")
        self.case = root / "double.py"
        self.case.write_text(DOUBLE_CASE, encoding="utf-8")

    def write(self, source: str) -> PythonKernel:
        self.folder.mkdir(parents=True)
        backend = {"type": "cpu"}
        metadata = {"name": "double", "id": "_double_cpu_x", "version": 1, "license": "Apache-2.0", "backend": backend}
        (self.folder / "metadata.json").write_text(json.dumps({**metadata, "python-depends": []}), encoding="utf-8")
        (self.folder / "__init__.py").write_text(source, encoding="utf-8")
        return self

    def load(self, timeout_s: float = TIMEOUT_S) -> object:
        return run_in_fresh_process(LOAD, {"folder": str(self.folder)}, timeout_s=timeout_s)

    def with_case(self, name: str = "double.py") -> Package:
        return replace(self.package, parity=(name,))


@pytest.fixture
def double(tmp_path: Path) -> PythonKernel:
    return PythonKernel(tmp_path)


def the_package(artifact: Path) -> Package:
    (package,) = (p for p in load_project(artifact.parents[2]).packages if p.name == artifact.parent.name)
    return package


def test_our_kernel_agrees_with_its_reference(rms_norm_folder: Path) -> None:
    report = check_parity(the_package(rms_norm_folder), rms_norm_folder, timeout_s=TIMEOUT_S)
    assert report.violations == ()
    whats = {"output", "output with grad", "grad x", "grad weight"}
    assert {(row.shape_name, row.dtype, row.what) for row in report.rows} == {
        (shape, dtype, what)
        for shape in ("tiny", "one vector and one element")
        for dtype in ("float32", "bfloat16")
        for what in whats
    }
    assert report.passed == len(report.rows) == 16
    assert rms_norm_folder.joinpath(f"{report.op_id}.abi3.so").is_file()


def test_the_isa_of_the_environment_reaches_the_kernel(rms_norm_folder: Path) -> None:
    report = check_parity(
        the_package(rms_norm_folder),
        rms_norm_folder,
        environment=environment(HUBKERNELS_ISA="no-such-tier"),
        timeout_s=TIMEOUT_S,
    )
    assert report.passed == 0
    assert all("no-such-tier" in str(row) for row in report.violations)


def test_every_wrong_result_is_reported_in_order(double: PythonKernel) -> None:
    double.write("def double(x):\n    return 3 * x\n")
    report = check_parity(double.with_case(), double.folder, timeout_s=TIMEOUT_S)
    assert [(row.dtype, row.shape_name, row.what) for row in report.violations] == [
        (dtype, "a few", what) for dtype in ("bfloat16", "float32") for what in ("grad x", "output", "output with grad")
    ]
    assert len(report.rows) == 12


def test_who_waits_for_parity_hears_how_many_cases_are_done(double: PythonKernel) -> None:
    double.write("import time\ndef double(x):\n    time.sleep(0.4)\n    return 2 * x\n")
    heard: list[Event] = []
    check_parity(double.with_case(), double.folder, timeout_s=TIMEOUT_S, report=heard.append)
    assert heard[-1] == Begun("parity: double: 3 of 4 cases")
    assert all(isinstance(event, Begun) and isinstance(event.what, Going) for event in heard)


def test_a_case_file_may_define_dataclasses(double: PythonKernel) -> None:
    double.write("def double(x):\n    return 2 * x\n")
    text = double.case.read_text(encoding="utf-8")
    shape = (
        "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass Shape:\n    rows: int\n"
    )
    double.case.write_text(shape + text, encoding="utf-8")
    assert check_parity(double.with_case(), double.folder, timeout_s=TIMEOUT_S).violations == ()


def test_a_case_that_is_missing_is_the_users_to_write(double: PythonKernel) -> None:
    double.write("")
    with pytest.raises(InputError, match="double names no case file"):
        check_parity(double.package, double.folder)
    with pytest.raises(InputError, match="is not a Python file that can be read"):
        check_parity(double.with_case("nowhere.py"), double.folder, timeout_s=TIMEOUT_S)
    (double.case.parent / "wrong.py").write_text("CASE = nonsense\n")
    with pytest.raises(InputError, match="wrong.py cannot be run: NameError: name 'nonsense' is not defined"):
        check_parity(double.with_case("wrong.py"), double.folder, timeout_s=TIMEOUT_S)
    (double.case.parent / "empty.py").touch()
    with pytest.raises(InputError, match="does not define CASE"):
        check_parity(double.with_case("empty.py"), double.folder, timeout_s=TIMEOUT_S)


def test_what_a_kernel_prints_does_not_disturb_the_answer(double: PythonKernel) -> None:
    double.write("print('{')\n__all__ = ['double']\ndef double(x): return x\n")
    answer = double.load()
    assert isinstance(answer, dict)
    assert (answer["variant"], answer["ops"]) == ("torch-cpu", [])


def test_a_crash_names_its_signal_and_the_line_that_ran(double: PythonKernel) -> None:
    double.write("import os\nos.kill(os.getpid(), 11)\n")
    with pytest.raises(CheckFailedError) as raised:
        double.load()
    assert f"died by {signal.SIGSEGV.name}" in str(raised.value)
    assert '__init__.py", line 2' in str(raised.value)


def test_an_exception_comes_with_the_kernels_part_of_its_traceback(double: PythonKernel) -> None:
    double.write("def inner():\n    raise OSError('no such table')\ninner()\n")
    with pytest.raises(CheckFailedError) as raised:
        double.load()
    for part in ("Traceback (most recent call last)", "line 3", "line 2, in inner", "OSError: no such table"):
        assert part in str(raised.value)
    assert str(raised.value).count("  File ") == 2  # neither ours nor the client's


def test_a_library_that_is_no_module_has_a_hint(double: PythonKernel) -> None:
    text = "dynamic module does not define module export function (PyInit__double)"
    double.write(f"raise ImportError({text!r})\n")
    with pytest.raises(CheckFailedError, match=r"hint: REGISTER_EXTENSION\(TORCH_EXTENSION_NAME\) is missing in the"):
        double.load()


def test_a_kernel_that_hangs_is_ended_and_tells_where(double: PythonKernel) -> None:
    double.write("import time\ntime.sleep(600)\n")
    with pytest.raises(CheckFailedError) as raised:
        double.load(timeout_s=15)
    assert "did not end within 15 s" in str(raised.value)
    assert "__init__.py, line 2" in str(raised.value)


def test_a_kernel_that_ends_the_process_quietly_has_failed(double: PythonKernel) -> None:
    double.write("import os\nos._exit(0)\n")
    with pytest.raises(CheckFailedError, match="ended with status 0 and no answer"):
        double.load()


def test_another_variant_than_the_one_asked_for_is_refused(double: PythonKernel) -> None:
    double.write("")
    other = double.folder.with_name("torch-universal")
    double.folder.rename(other)
    double.write("")
    with pytest.raises(CheckFailedError, match="the client loads torch-cpu, not torch-universal"):
        run_in_fresh_process(LOAD, {"folder": str(other)}, timeout_s=TIMEOUT_S)


def test_a_missing_client_is_named_with_the_command_that_installs_it(double: PythonKernel, tmp_path: Path) -> None:
    double.write("")
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['kernels'] = None\n", encoding="utf-8")
    with pytest.raises(EnvironmentLacksError, match=r"kernels cannot be imported(.|\n)*hubkernels\[client\]"):
        run_in_fresh_process(
            LOAD,
            {"folder": str(double.folder)},
            timeout_s=TIMEOUT_S,
            environment=environment(PYTHONPATH=str(tmp_path)),
        )


def test_a_folder_called_kernels_does_not_stand_for_the_client(
    double: PythonKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    double.write("").load()


def bench_cell(kernel: PythonKernel, *directions: str) -> BenchCell:
    return BenchCell(
        kernel.with_case(), kernel.folder, str(kernel.case), "double", "a few", (5,), "float32", directions, usual=True
    )


def test_a_wrong_direction_is_not_timed(double: PythonKernel) -> None:
    double.write("import torch\ndef double(x):\n    return 3 * x if torch.is_grad_enabled() else 2 * x\n")
    settings = Settings(1, 0.01, "default", peers=False)
    now = datetime(2026, 1, 2, tzinfo=timezone.utc)
    result = run_cell(bench_cell(double, "fwd", "f+b"), settings, environment(), now)
    assert [record.direction for record in result.records] == ["fwd"]
    first = str(result.problems[0])
    assert first.startswith("double float32 a few f+b output with grad: ")
    assert "x the tolerance" in str(result.problems[1])


def test_a_peer_that_raises_costs_one_line_and_a_wrong_one_shows_its_error(double: PythonKernel) -> None:
    double.write("def double(x):\n    return 2 * x\n")
    settings = Settings(1, 0.01, "pretouched")
    result = run_cell(bench_cell(double, "fwd"), settings, environment(), datetime(2026, 1, 2, tzinfo=timezone.utc))
    (record,) = result.records
    assert [(peer.name, peer.error) for peer in record.peers] == [("add", 0.0), ("half", 0.75)]
    assert [(peer.name, peer.reason) for peer in record.failed_peers] == [
        ("fails", "output: the call raised ValueError: not today")
    ]
    assert (record.page_faults, record.date) == ("pre-touched", "2026-01-02T00:00:00+00:00")
    assert record.machine.allocator == "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184"


def test_a_kernel_that_crashes_is_a_problem_of_its_cell_alone(double: PythonKernel) -> None:
    double.write("import os\ndef double(x):\n    os.abort()\n")
    settings = Settings(1, 0.01, "default")
    result = run_cell(bench_cell(double, "fwd"), settings, environment(), datetime(2026, 1, 2, tzinfo=timezone.utc))
    assert result.records == ()
    assert str(result.problems[0]).startswith("double float32 a few: bench: the process died by SIGABRT")


PEERS = """\
import torch
from hubkernels.check.opcase import Peer

PEERS = (Peer("F.rms_norm", lambda x, weight, eps: torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)),)
"""


def test_bench_run_prints_a_line_and_writes_a_record_for_each_direction(
    rms_norm_folder: Path, tmp_path: Path, cli: Cli
) -> None:
    (tmp_path / "peers.py").write_text(PEERS, encoding="utf-8")
    root = rms_norm_folder.parents[2]
    options = ("--seconds", "0.01", "--threads", "1", "--dtype", "bf16", "--peer-file", tmp_path / "peers.py")
    ran = cli("bench", "run", "rms_norm", "--project", root, *options, "--output", tmp_path / "records")
    assert ran.code == 0, ran.err
    forward, both = ran.out.splitlines()
    assert forward.startswith("rms_norm fwd bf16 3x7 | ")
    assert both.startswith("rms_norm f+b bf16 3x7 | ")
    assert "F.rms_norm" in both
    files = {path.name: path for path in (tmp_path / "records").iterdir()}
    assert set(files) == {f"rms-norm-rms_norm-bfloat16-3x7-{way}-t1-pre-touched.json" for way in ("fwd", "f+b")}
    text = files["rms-norm-rms_norm-bfloat16-3x7-f+b-t1-pre-touched.json"].read_text(encoding="utf-8")
    record = Record.from_json(json.loads(text))
    assert record.text() == text
    assert rms_norm_folder.joinpath(f"{record.artifact}.abi3.so").is_file()
    assert record.peers[0].ratio == record.time.median_us / record.peers[0].time.median_us


def test_bench_run_refuses_a_word_that_no_case_has(rms_norm_folder: Path, cli: Cli) -> None:
    ran = cli("bench", "run", "rms_nrom", "--project", rms_norm_folder.parents[2])
    assert ran.code == 2
    assert "no case has the op 'rms_nrom'" in ran.err
    assert "did you mean rms_norm?" in ran.err


def test_a_package_without_a_case_does_not_stop_the_others(rms_norm_folder: Path, tmp_path: Path, cli: Cli) -> None:
    """Members from `init` have none: parity is a key of workspaces."""
    root = tmp_path / "workspace"
    shutil.copytree(rms_norm_folder.parents[2], root)
    SmallProject(root / "member", "my-kernel").write()
    text = (root / "build.toml").read_text(encoding="utf-8")
    (root / "build.toml").write_text(text.replace("schema = 1", 'schema = 1\nmembers = ["member"]'), encoding="utf-8")
    assert cli("build", "--project", root, "--variant", CPU_VARIANT).code == 0
    ran = cli("check", "parity", "--project", root)
    assert ran.code == 0, ran.err
    assert "skipped  parity  my-kernel  my-kernel names no case file\n" in ran.out
    timed = cli("bench", "run", "rms_norm", "--project", root, "--no-peers", "--dtype", "fp32", "--seconds", "0.01")
    assert timed.code == 0, timed.err
    named = cli("check", "parity", "my-kernel", "--project", root)
    assert named.code == 2
    assert "make it a package of a [workspace]" in named.err
