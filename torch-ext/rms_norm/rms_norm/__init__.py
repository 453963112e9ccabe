"""RMS norm, also of a sum and with a gate, with an exact, deterministic backward."""

from . import layers
from .functional import add_rms_norm, add_rms_norm_, cpu_isa, gated_rms_norm, rms_norm

__all__ = ["add_rms_norm", "add_rms_norm_", "cpu_isa", "gated_rms_norm", "layers", "rms_norm"]
