# Sourced by ./run and ./test: what they need from Debian, and from Rust.
# shellcheck shell=sh

# Installs those of the packages named that are missing.
install_packages() {
    if ! command -v dpkg-query >/dev/null; then
        echo "this is not Debian: make sure that there is what these packages hold: $*" >&2
        return 0
    fi
    missing=
    for package; do
        status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || status=none
        [ "$status" = installed ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    echo "installing from Debian:$missing" >&2
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        as_root=sudo
        if ! command -v sudo >/dev/null; then
            echo "only root can install packages; as root, do: apt-get install$missing" >&2
            return 1
        fi
    fi
    # A machine that has never seen its package lists gets them, and one more try.
    # shellcheck disable=SC2086 # a list of words
    quietly $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends $missing && return 0
    quietly $as_root apt-get update || return 1
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends $missing >/dev/null
}

quietly() {
    "$@" >/dev/null 2>&1
}

# Ends the script unless there is Rust of this version or a later one: 1.88, if none is told.
need_rust() {
    if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
        PATH=$HOME/.cargo/bin:$PATH
    fi
    # "rustc 1.92.0 (ded5c06cf 2025-12-08)"
    rust=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9]*\.[0-9]*\).*/\1/p') || rust=
    # No `sort -C`, which BusyBox does not know.
    oldest=$(printf '%s\n' "${1:-1.88}" "$rust" | sort -V | head -n 1)
    if command -v cargo >/dev/null && [ -n "$rust" ] && [ "$oldest" = "${1:-1.88}" ]; then
        return 0
    fi
    echo "Rust ${1:-1.88} or later is needed, and there is ${rust:-none}: rustup update (https://rustup.rs), then try again" >&2
    exit 2
}

# The eBPF programs of the test bed are compiled in every build; Rust needs a linker.
BUILD_PACKAGES="gcc libc6-dev clang libbpf-dev linux-libc-dev"
