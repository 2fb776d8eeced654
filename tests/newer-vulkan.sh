#!/usr/bin/env bash
# Unpacks the software Vulkan of Debian's backports beside the installed one, and prints the file
# for VK_DRIVER_FILES. The driver of Debian 12 has no subgroups, no f16 and no integers of 8 bits.
#
# Usage: tests/newer-vulkan.sh [FOLDER]
#
# FOLDER (~/.cache/playhouse-vulkan) keeps what was unpacked. The libraries that the driver needs
# come with the installed package mesa-vulkan-drivers.
set -euo pipefail

folder="${1:-$HOME/.cache/playhouse-vulkan}"
driver="$folder/root/usr/lib/$(uname -m)-linux-gnu/libvulkan_lvp.so"

unpack() {
    local release mirror
    release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ "$release" = bookworm ] || { echo "no Debian 12: '$release'" >&2; return 1; }
    mirror=$(apt-get indextargets --format '$(REPO_URI)' \
        "Codename: $release" 'Origin: Debian' 'Component: main' | head -1)
    mkdir -p "$folder/sources" "$folder/lists/partial"
    cat >"$folder/sources/backports.sources" <<END
Types: deb
URIs: $mirror
Suites: $release-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    local apt=(apt-get -qq -o APT::Sandbox::User=root -o Dir::Etc::SourceList=/dev/null
        -o "Dir::Etc::SourceParts=$folder/sources" -o "Dir::State::Lists=$folder/lists"
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
    "${apt[@]}" update
    (cd "$folder" && rm -f ./*.deb && "${apt[@]}" download mesa-vulkan-drivers)
    dpkg-deb -x "$folder"/mesa-vulkan-drivers_*.deb "$folder/root"
}

[ -f "$driver" ] || unpack >&2
printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.3.0"}}\n' \
    "$driver" >"$folder/driver.json"
echo "$folder/driver.json"
