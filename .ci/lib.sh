# shellcheck shell=bash
# Shared by the scripts of this folder; sourced, never run. root is the top of the
# checkout.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Where Go's own archive goes; root's PATH under sudo often lacks it.
PATH=$PATH:/usr/local/go/bin

# tmp is removed when the script ends.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# say tells the reader what was done; stdout is left to results.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die says what is missing and what to do about it.
die() {
	say "$*"
	exit 1
}

docker_answers() { command -v docker >/dev/null && timeout 20 docker version >/dev/null 2>&1; }

# apt runs apt-get without questions; what it says is shown only when it fails.
apt() {
	DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >"$tmp/apt.log" 2>&1 && return
	tail -n 20 "$tmp/apt.log" >&2
	die "apt-get $1 failed: the lines above are the end of what it said"
}

# apt_install installs packages of the distribution, by fresh package lists.
apt_install() {
	[ -n "${apt_updated:-}" ] || apt update
	apt_updated=1
	apt install -y --no-install-recommends "$@"
}

# need_git installs git, which runs and tests read repositories with.
need_git() {
	command -v git >/dev/null && return
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
		die "git is not installed: install it, then try again"
	say "installing git from the distribution's packages"
	apt_install git ca-certificates
}

# need_go refuses a missing Go, or one that cannot build this module.
need_go() {
	local want
	want=$(sed -nE 's/^go ([0-9.]+)$/\1/p' "$root/go.mod")
	command -v go >/dev/null ||
		die "Go is not installed: install Go $want or newer (https://go.dev/dl), put its bin folder on PATH, then try again"
	(cd "$root" && go list -m >/dev/null 2>&1) ||
		die "this machine's $(cd / && go version | cut -d' ' -f3) cannot build a module that needs Go $want: install a newer one (https://go.dev/dl) or set GOTOOLCHAIN=auto"
	say "building with $(cd "$root" && go env GOVERSION)"
}
