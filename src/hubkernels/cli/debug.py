"""What `--debug` tells of an error: where it was raised, and what the machine and the environment are."""

from __future__ import annotations

import platform
import re
import sys
import traceback
from collections.abc import Mapping

from hubkernels import __version__
from hubkernels.host.cpu import usable_cores
from hubkernels.host.machine import find_torch
from hubkernels.host.memory import free_memory
from hubkernels.model.size import size_text

_TOLD = re.compile(
    r"PATH|SHELL|TMPDIR|LANG|LC_\w+|NO_COLOR|CXX|CC|CPATH|C\w*_INCLUDE_PATH|LIBRARY_PATH|LD_\w+|PYTHON\w*|VIRTUAL_ENV"
    r"|CONDA_PREFIX|CUDA_HOME|CUDA_PATH|NVCC_\w+|S?CCACHE_DIR|HUBKERNELS_(CACHE|ISA)|SOURCE_DATE_EPOCH"
)
"""Variables that a build may depend on. Others are not: reports are public, and tokens are among them."""


def describe(failure: BaseException, environment: Mapping[str, str]) -> str:
    trace = "".join(traceback.format_exception(failure)).rstrip()
    return "\n".join((trace, *(f"{name}={value}" for name, value in facts(environment).items())))


def facts(environment: Mapping[str, str]) -> dict[str, str]:
    """The versions, the machine, and the variables that a build may depend on."""
    torch, memory = find_torch(), free_memory()
    return {
        "hubkernels": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "torch": f"{torch.release} ({torch.root})" if torch else "none",
        "platform": platform.platform(),
        "cores": str(usable_cores()),
        "memory": size_text(memory) if memory is not None else "unknown",
        **{f"${name}": environment[name] for name in sorted(environment) if _TOLD.fullmatch(name)},
    }
