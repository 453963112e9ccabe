"""RMS norm and layer norm with an exact, deterministic backward."""

from . import layers
from .functional import cpu_isa, rms_norm
from .layer_norm import layer_norm

__all__ = ["cpu_isa", "layer_norm", "layers", "rms_norm"]
