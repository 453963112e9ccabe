"""For programs that run kernels: imports nothing but this package until a kernel is asked for."""

from hubkernels.runtime.load import get_kernel

__all__ = ["get_kernel"]
