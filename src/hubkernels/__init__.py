"""hubkernels: build, check, publish and run PyTorch kernels from one build.toml."""

__version__ = "0.1.0"
