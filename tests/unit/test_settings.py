"""How many commands run at a time, from cores, memory and what the user says; and where the memory is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from hubkernels.build.settings import DEVICE_COMPILE, Need, Settings, limit_jobs, usual_need
from hubkernels.cli import options
from hubkernels.host.memory import free_memory
from hubkernels.model.size import parse_size

GB = 10**9


@pytest.mark.parametrize(
    ("jobs", "memory", "steps", "stable", "expected"),
    [
        (16, None, 20, False, 16),  # no limit
        (16, 100 * GB, 20, False, 16),
        (16, 6 * GB, 20, False, 2),  # 2.5 GB each
        (16, 6 * GB, 20, True, 12),  # 0.5 GB each
        (16, 1 * GB, 20, False, 1),  # one runs at least
        (16, 0, 20, False, 1),
        (16, 6 * GB, 2, False, 16),  # no more than two would run
    ],
)
def test_memory_limits_the_jobs(jobs: int, memory: int | None, steps: int, stable: bool, expected: int) -> None:  # noqa: FBT001 - a parameter of the table
    allowed, why = limit_jobs(Settings(jobs, memory), [usual_need(stable_abi=stable)] * steps)
    assert (allowed, why is None) == (expected, expected == jobs)


def test_the_reason_names_the_figures_and_the_options() -> None:
    _, why = limit_jobs(Settings(16, 6 * GB), [usual_need(stable_abi=False)] * 8)
    assert why == (
        "2 commands at a time instead of 8: 6.0 GB of memory may be used, and a compile with all of torch's headers "
        "takes up to 2.5 GB (--memory, --jobs)"
    )


def test_one_step_is_never_limited() -> None:
    allowed, why = limit_jobs(Settings(16, GB), [usual_need(stable_abi=False)])
    assert allowed == 1
    assert why is not None
    assert "takes up to 2.5 GB, and 1.0 GB of memory may be used: it runs alone, and may be ended for it" in why


def test_a_source_for_nvcc_may_include_all_of_torch_s_headers() -> None:
    assert usual_need(stable_abi=False, device_threads=1) == usual_need(stable_abi=False)
    assert usual_need(stable_abi=True, device_threads=1).what == "nvcc"
    assert usual_need(stable_abi=False, device_threads=4).size == 4 * DEVICE_COMPILE


def test_one_heavy_source_limits_what_runs_beside_it_and_no_more() -> None:
    heavy, light = Need(5 * GB, "a.cu, as measured,"), Need(GB // 2, "the stable ABI's headers")
    allowed, why = limit_jobs(Settings(8, 6 * GB), [light] * 6 + [heavy])
    assert allowed == 3
    assert why == (
        "3 commands at a time instead of 7: 6.0 GB of memory may be used, and a compile with a.cu, as measured, "
        "takes up to 5 GB (--memory, --jobs)"
    )


@pytest.mark.parametrize(
    ("said", "jobs", "memory"),
    [
        ({}, 3, 7 * GB),  # what the machine has
        ({"jobs": 8}, 8, None),  # said by the user, who knows
        ({"memory": 2 * GB}, 3, 2 * GB),
        ({"jobs": 8, "memory": 2 * GB}, 8, 2 * GB),
    ],
)
def test_what_the_user_says_comes_before_what_the_machine_has(
    said: dict[str, int], jobs: int, memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubkernels.host.cpu.usable_cores", lambda: 3)
    monkeypatch.setattr("hubkernels.host.memory.free_memory", lambda: 7 * GB)
    found = options.settings(**said)  # type: ignore[arg-type]  # numbers alone
    assert (found.jobs, found.memory) == (jobs, memory)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GB", 8 * GB),
        ("8 gb", 8 * GB),
        ("8G", 8 * GB),
        ("1.5GiB", 3 << 29),
        ("500MB", GB // 2),
        ("4096", 4096),
        ("1kB", 1000),
        ("2TiB", 2 << 40),
    ],
)
def test_sizes_are_read_as_they_are_written(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "8XB", "-1GB", "8GB8", "1.2.3GB", "٨GB", "8G B!", "9" * 400 + "TB", "10000000TB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    assert parse_size(text) is None
    with pytest.raises(typer.BadParameter, match="is no size; write it as 8GB"):
        options._size(text)


def system(root: Path, files: dict[str, str]) -> tuple[Path, Path]:
    """A /proc and a /sys/fs/cgroup with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root / "proc", root / "cgroup"


MEMINFO = {"proc/meminfo": "MemTotal:  16000000 kB\nMemFree:  1 kB\nMemAvailable:    8000000 kB\n"}


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({}, 8_192_000_000),
        (  # the second version: the tightest of the groups around the process, its page cache counted as free
            {
                "proc/self/cgroup": "0::/user/job\n",
                "cgroup/user/job/memory.max": "max\n",
                "cgroup/user/job/memory.current": "5\n",
                "cgroup/user/memory.max": "4000000000\n",
                "cgroup/user/memory.current": "3000000000\n",
                "cgroup/user/memory.stat": "anon 1\ninactive_file 500000000\n",
            },
            1_500_000_000,
        ),
        (  # in a container the limit stands at the root that is in sight
            {
                "proc/self/cgroup": "0::/../elsewhere\n",
                "cgroup/memory.max": "2000000000\n",
                "cgroup/memory.current": "0\n",
            },
            2_000_000_000,
        ),
        (  # the first version, with a controller of its own; no limit at the outer group
            {
                "proc/self/cgroup": "9:cpu:/\n4:memory:/box\n",
                "cgroup/memory/box/memory.limit_in_bytes": "1000000000\n",
                "cgroup/memory/box/memory.usage_in_bytes": "1200000000\n",
                "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "cgroup/memory/memory.usage_in_bytes": "1\n",
            },
            0,
        ),
    ],
)
def test_free_memory_is_what_machine_and_control_groups_leave(
    tmp_path: Path, groups: dict[str, str], expected: int
) -> None:
    assert free_memory(*system(tmp_path, {**MEMINFO, **groups})) == expected


def test_a_system_that_does_not_tell_its_memory_sets_no_limit(tmp_path: Path) -> None:
    assert free_memory(*system(tmp_path, {})) is None
