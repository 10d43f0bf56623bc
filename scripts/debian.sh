# Functions for scripts that make a clean Debian. They source this file.
#
# SUITE names the release (bookworm). MIRROR names the mirror; without it, the mirror is the one
# that this machine's apt has for the release, or else the default of mmdebstrap or debootstrap.

suite=${SUITE:-bookworm}

# Prints the address of a mirror, or nothing.
debian_mirror() {
    if [[ -n ${MIRROR:-} ]]; then
        echo "$MIRROR"
    elif command -v apt-get >/dev/null; then
        apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Codename: $suite" 2>/dev/null | sed -n 1p || true
    fi
}

# Prints this machine's settings of apt that a download from its mirror may need, such as proxies.
apt_settings() {
    command -v apt-config >/dev/null || return 0
    apt-config dump | grep -E '^Acquire::(https?|Check|Retries|ForceIPv[46])' || true
}

# Makes a clean Debian in the folder $1, with the further packages $2, separated by commas.
make_debian() {
    local root=$1 include=${2:+--include=$2} mirror settings
    mirror=$(debian_mirror)
    settings=$(mktemp)
    apt_settings >"$settings"
    if command -v mmdebstrap >/dev/null; then
        mmdebstrap --quiet --variant=minbase --mode=root --aptopt="$settings" $include "$suite" "$root" $mirror
    else
        debootstrap --variant=minbase $include "$suite" "$root" $mirror >/dev/null
        cp "$settings" "$root/etc/apt/apt.conf.d/90mirror"
    fi
    rm -f "$settings"
    # mmdebstrap also copies this file, debootstrap does not.
    cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
}
