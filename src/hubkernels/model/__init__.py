"""Frozen values and pure functions on them. Imports nothing of hubkernels but errors.

One word per idea:

project         a folder with a build.toml
package         one publishable kernel (one Hub repo)
kernel section  one ``[kernel.x]`` table: sources for one backend
backend         cpu, cuda, rocm, xpu, metal, tpu, neuron, cann: what a variant runs on
variant         one build target, spelled as the client spells it (``torch-stable-abi210-cpu-x86_64-linux``)
toolchain       compilers, SDK headers and flags for a variant
plan            every command of one build, as data
artifact        the finished ``build/<package>/<variant>/`` folder
record          JSON of a parity or benchmark run
"""
