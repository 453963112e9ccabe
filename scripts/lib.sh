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

# find_python [NAME]: NAME, or the first usable one on PATH; nothing where there is none.
find_python() {
  local name
  if [[ -n ${1:-} ]]; then
    python_version "$1" >/dev/null || die "$1 is no Python >= 3.10 that runs" 2
    command -v "$1"
    return
  fi
  for name in python3 python3.13 python3.12 python3.11 python3.10; do
    if python_version "$name" >/dev/null; then
      command -v "$name"
      return
    fi
  done
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

# need_system [PYTHON]: sets $python, and installs what a build needs from the system.
need_system() {
  local packages
  python=$(find_python "${1:-}")
  mapfile -t packages < <(missing_packages "$python")
  if ((${#packages[@]})); then
    install_packages "${packages[@]}"
    python=$(find_python "${1:-}")
    [[ -n $python ]] || die "no Python >= 3.10; name one with --python"
  fi
}

# is_installed VENV STAMP: whether the environment runs and was made for the stamp.
is_installed() {
  "$1/bin/python" -c '' 2>/dev/null && [[ $(cat "$1/stamp" 2>/dev/null) == "$2" ]]
}

pip_install() {
  local venv=$1
  shift
  "$venv/bin/python" -m pip install --disable-pip-version-check "$@"
}
