"""RMS norm, also of a sum and with a gate, and layer norm, with an exact, deterministic backward."""

from . import layers
from .functional import add_rms_norm, add_rms_norm_, cpu_isa, gated_rms_norm, rms_norm
from .layer_norm import layer_norm

__all__ = ["add_rms_norm", "add_rms_norm_", "cpu_isa", "gated_rms_norm", "layer_norm", "layers", "rms_norm"]
