"""For `kernels benchmark`: each benchmark_* is timed, after its result equals that of verify_*."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark
from torch import Tensor


class MyKernelBenchmark(Benchmark):
    seed = 0

    def setup(self) -> None:
        self.x = torch.randn(4096, 4096, device=self.device)

    def benchmark_large(self) -> None:
        self.out = self.kernel.my_kernel(self.x)

    def verify_large(self) -> Tensor:
        return torch.relu(self.x).square()

    def setup_small(self) -> None:
        self.x = torch.randn(128, 1024, device=self.device)

    def benchmark_small(self) -> None:
        self.out = self.kernel.my_kernel(self.x)

    def verify_small(self) -> Tensor:
        return torch.relu(self.x).square()
