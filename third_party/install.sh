#!/usr/bin/env bash
# third_party/install.sh [build|bench|check]: installs the Debian packages that are missing; does nothing if all are there.
# This list is the only one. `build` is what building, testing and running need, `bench` what scripts/bench needs besides,
# `check` what CI needs: all.
set -eu

build=(
  g++ cmake ninja-build ccache pkg-config # tools
  libdnnl-dev                             # matrix products, f32 and bf16
  libopenmpi-dev openmpi-bin              # ranks as processes
  libfmt-dev libtomlplusplus-dev          # text: messages, plan files
  nlohmann-json3-dev libxxhash-dev        # checkpoints: headers and manifests, hashes
  libcli11-dev                            # tools: arguments
  libpcre2-dev libutf8proc-dev            # tools: the tokenizer's patterns, forms of Unicode
  doctest-dev                             # tests
)
check=(
  clang-format-14
  libopenblas-openmp-dev # matrix products in f32 of a build without oneDNN
  valgrind               # counts instructions
)
bench=(
  python3 python3-venv # runs the benchmarks; peers are installed into a folder of their own
)

case ${1:-build} in
  build) wanted=("${build[@]}") ;;
  check) wanted=("${build[@]}" "${check[@]}" "${bench[@]}") ;;
  bench) wanted=("${build[@]}" "${bench[@]}") ;;
  *) echo "usage: third_party/install.sh [build|check|bench]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "not a Debian system: install the equivalents of: ${wanted[*]}" >&2
  exit 0 # CMake names what it does not find
fi
missing=()
for package in "${wanted[@]}"; do
  case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) in
    *" installed") ;;
    *) missing+=("$package") ;;
  esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "installing: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "not root and no sudo: ask for these packages to be installed" >&2; exit 1; }
  as_root=(sudo)
  echo "with sudo, from Debian's packages"
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
