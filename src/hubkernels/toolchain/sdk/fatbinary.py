"""A fatbinary for clang: that of CUDA 13, the only one in wheels, behind a script that translates for it.

clang up to 20 says ``--image=profile=sm_80,file=F``, which CUDA 13 has forgotten: ``--image3=kind=elf,sm=80,file=F``.
Nothing is compressed, since a driver of CUDA 12.6 may not know the way that CUDA 13 compresses by.
"""

from __future__ import annotations

PROGRAM = "fatbinary-13"
"""How the program is called, beside the script."""

_SCRIPT = """\
#!/bin/sh
# What clang asks of fatbinary, in the words of CUDA 13.
left=$#
while [ "$left" -gt 0 ]; do
  word=$1
  shift
  case $word in
    --image=profile=sm_*) word=--image3=kind=elf,sm=${word#--image=profile=sm_} ;;
    --image=profile=compute_*) word=--image3=kind=ptx,sm=${word#--image=profile=compute_} ;;
  esac
  set -- "$@" "$word"
  left=$((left - 1))
done
exec "${0%/*}/@PROGRAM@" --compress-mode=none "$@"
"""


def translator() -> bytes:
    return _SCRIPT.replace("@PROGRAM@", PROGRAM).encode()
