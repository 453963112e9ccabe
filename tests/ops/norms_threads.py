"""Which threads the norms start, and whether a forked child may call them: `python -m tests.ops.norms_threads REPO`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import kernels
import torch

from tests.ops.norms import NORMS


def threads() -> int:
    """Count the threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def main(repo: Path) -> None:
    """Call every norm on little, then on much, then in a child."""
    op = kernels.get_local_kernel(repo)
    torch.set_num_threads(2)
    before = threads()
    for norm in NORMS.values():
        norm.run(op, norm.draw(4, 256))
    assert threads() == before, "a small input was not worth a thread"

    large = {name: norm.draw(512, 1024) for name, norm in NORMS.items()}
    expected = {name: norm.run(op, large[name]) for name, norm in NORMS.items()}
    assert threads() > before, "a large one is"

    child = os.fork()
    if child == 0:
        # As the workers of a DataLoader do: the threads of the parent are not here, and OpenMP waits for them.
        torch.set_num_threads(1)
        found = {name: norm.run(op, large[name]) for name, norm in NORMS.items()}
        same = all(torch.equal(found[name][what], t) for name in NORMS for what, t in expected[name].items())
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
