"""RMS norm with an exact, deterministic backward."""

from . import layers
from .functional import cpu_isa, rms_norm

__all__ = ["cpu_isa", "layers", "rms_norm"]
