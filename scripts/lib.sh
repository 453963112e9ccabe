# shellcheck shell=bash
# What the scripts share. Sourced from the repository's root.

step() { printf '\n==> %s\n' "$*"; }

# die MESSAGE [EXIT CODE]
die() {
  printf 'error: %s\n' "$1" >&2
  exit "${2:-3}"
}

# The version of the interpreter when it really runs (a version manager's shim may not) and is 3.10 or newer.
python_version() {
  "$1" -c 'import sys; assert sys.version_info >= (3, 10); print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

# find_python FOLDER [NAME]: the path of NAME, or of the first usable interpreter on PATH; nothing where there is none.
# FOLDER is where environments are about to be made: see outside.
find_python() {
  local name
  if [[ -n ${2:-} ]]; then
    python_version "$2" >/dev/null || die "$2 is no Python >= 3.10 that runs" 2
    outside "$1" "$2"
    return
  fi
  for name in python3 python3.13 python3.12 python3.11 python3.10; do
    if python_version "$name" >/dev/null; then
      outside "$1" "$name"
      return
    fi
  done
}

# outside FOLDER PYTHON: the interpreter's path; for one of an environment in FOLDER, which is removed when it is made
# again, the path of the one that it was made from.
outside() {
  local candidate
  while read -r candidate; do
    if python_version "$candidate" >/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done < <(
    "$2" - "$1" "$(command -v "$2")" <<'PY'
import os
import sys

folder, found = sys.argv[1:]
here = os.path.realpath(sys.prefix)
if not os.path.join(here, "").startswith(os.path.join(os.path.realpath(folder), "")):
    print(os.path.abspath(found))
else:
    if os.path.exists(os.path.join(here, "made-from")):
        print(open(os.path.join(here, "made-from")).read().strip())
    # sys._base_executable is this environment's own before Python 3.11.
    print(os.path.join(sys.base_prefix, "bin", "python%d.%d" % sys.version_info[:2]))
PY
  )
}

# missing_packages PYTHON: the Debian packages that a build lacks. PYTHON may be empty.
missing_packages() {
  local version
  if [[ -z $1 ]]; then
    printf '%s\n' python3 python3-venv python3-dev
  else
    version=$(python_version "$1")
    "$1" -c 'import ensurepip, venv' 2>/dev/null || printf '%s\n' "python$version-venv"
    "$1" -c 'import os, sysconfig; assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
      printf '%s\n' "python$version-dev"
  fi
  [[ -n ${CXX:-} ]] || command -v g++ c++ clang++ >/dev/null || printf '%s\n' g++
}

# install_packages PACKAGE...: print one apt line, and run it as root.
install_packages() {
  local line="apt-get install -y --no-install-recommends $*"
  printf 'missing: %s\n' "$line"
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    die "run that line as root, then this script again"
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# need_system FOLDER [PYTHON]: sets $python as find_python does, and installs what a build needs from the system.
need_system() {
  local packages
  python=$(find_python "$@")
  mapfile -t packages < <(missing_packages "$python")
  if ((${#packages[@]})); then
    install_packages "${packages[@]}"
    python=$(find_python "$@")
    [[ -n $python ]] || die "no Python >= 3.10; name one with --python"
  fi
}

# identity PYTHON: what it is, by whichever name, for a stamp.
identity() { "$1" -c 'import sys; print(sys.prefix, sys.version)'; }

# is_installed VENV STAMP: whether the environment runs and was made for the stamp.
is_installed() {
  "$1/bin/python" -c '' 2>/dev/null && [[ $(cat "$1/stamp" 2>/dev/null) == "$2" ]]
}

# make_venv VENV PYTHON: an empty environment that remembers the interpreter, in place of the one that is there.
make_venv() {
  rm -rf "$1"
  mkdir -p "$1"
  "$2" -c 'import sys; print(sys.executable)' >"$1/made-from"
  "$2" -m venv "$1"
}

# refuse_foreign VENV: what is about to be removed has to be ours, and an environment with a usual name may be anyone's.
refuse_foreign() {
  [[ ! -e $1 || -e $1/made-from ]] || die "$1 was not made by this script: move it away" 2
}

# share_packages VENV PYTHON: lets the environment see the packages of the interpreter, also when that one is itself of
# an environment.
share_packages() {
  "$2" - "$1" <<'PY'
import pathlib
import sys

theirs = [path for path in sys.path if path.endswith("-packages")]
(site,) = pathlib.Path(sys.argv[1]).glob("lib/python*/site-packages")
(site / "shared.pth").write_text("".join(f"{path}\n" for path in theirs))
PY
}

# torch_release PYTHON: the release of its torch, from metadata; nothing where it has none.
torch_release() {
  "$1" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null || true
}

# why_not_torch PYTHON: what keeps kernels from being built with its torch; nothing where they can be. Takes seconds.
why_not_torch() {
  "$1" -W ignore - 2>/dev/null <<'PY' || echo "importing it ends Python"
import re

try:
    import torch
except Exception as error:
    print("it does not import:", type(error).__name__, str(error).partition("\n")[0])
else:
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < (2, 10):
        print("it is older than 2.10")
PY
}

pip_install() {
  local venv=$1
  shift
  "$venv/bin/python" -m pip install --disable-pip-version-check "$@"
}
