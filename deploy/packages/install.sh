#!/bin/sh
# Installs semel {{version}} for Linux on x86-64:
#
#   sh install.sh --from URL [--to FOLDER]
#
# URL is where the files of the release are. The program goes to FOLDER/bin (default: ~/.local), after its checksum was
# found right. Nothing else is changed.
set -eu

version="{{version}}"
from=""
to="${HOME:-/usr}/.local"

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case "$1" in
        --from) [ $# -ge 2 ] || fail "--from needs a URL"; from="$2"; shift 2 ;;
        --to) [ $# -ge 2 ] || fail "--to needs a folder"; to="$2"; shift 2 ;;
        *) fail "unknown option $1; see the first lines of this script" ;;
    esac
done
[ -n "$from" ] || fail "say where the files of the release are: --from URL"
[ -n "$to" ] || fail "--to needs a folder"

case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) ;;
    *) fail "there is no program for $(uname -s) on $(uname -m); build from source" ;;
esac

if command -v curl >/dev/null 2>&1; then
    download() { curl --fail --silent --show-error --location --output "$2" "$1"; }
elif command -v wget >/dev/null 2>&1; then
    download() { wget --quiet --output-document="$2" "$1"; }
else
    fail "needs curl or wget"
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
archive="semel-$version-x86_64-linux.tar.gz"
download "$from/$archive" "$folder/$archive" || fail "cannot download $from/$archive"
download "$from/SHA256SUMS" "$folder/SHA256SUMS" || fail "cannot download $from/SHA256SUMS"
grep " $archive\$" "$folder/SHA256SUMS" >"$folder/sum" || fail "SHA256SUMS does not name $archive"
(cd "$folder" && sha256sum --check --status sum) || fail "the checksum of $archive is wrong: nothing was installed"

tar -xzf "$folder/$archive" -C "$folder"
mkdir -p "$to"
cp -R "$folder/semel-$version-x86_64-linux/." "$to/"
echo "installed $to/bin/semel ($("$to/bin/semel" --version))"
case ":${PATH:-}:" in
    *":$to/bin:"*) ;;
    *) echo "add it to your PATH: export PATH=\"$to/bin:\$PATH\"" ;;
esac
