#!/bin/sh
# A stand-in for debian:bookworm-slim where no registry of images is in reach: base.sh IMAGE
# Made from Debian's packages.  Whom this machine trusts is trusted in it, so that builds reach the package indexes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$work/cas" <<'P'
import pathlib, re, ssl, sys

out = pathlib.Path(sys.argv[1])
out.mkdir()
pem = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.S)
debian = pathlib.Path("/usr/share/ca-certificates").rglob("*.crt")
known = {ssl.PEM_cert_to_DER_cert(found) for path in debian for found in pem.findall(path.read_text())}
here = pem.findall(pathlib.Path("/etc/ssl/certs/ca-certificates.crt").read_text())
for number, found in enumerate(each for each in here if ssl.PEM_cert_to_DER_cert(each) not in known):
    (out / f"site-{number}.crt").write_text(found + "\n")
P
if [ -f /etc/pip.conf ]; then cp /etc/pip.conf "$work/pip.conf"; else : > "$work/pip.conf"; fi
echo 'APT::Keep-Downloaded-Packages "false";' > "$work/docker-clean"  # as in the public image
mmdebstrap --quiet --variant=minbase --mode=root --include=ca-certificates,netbase,tzdata,usr-is-merged \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Check-Date "false"' \
  --customize-hook="upload $work/docker-clean /etc/apt/apt.conf.d/docker-clean" \
  --customize-hook="copy-in $work/cas /usr/local/share/ca-certificates" \
  --customize-hook='chroot "$1" update-ca-certificates' \
  --customize-hook="upload $work/pip.conf /etc/pip.conf" \
  --customize-hook='chroot "$1" sh -c "dpkg --purge usrmerge libfile-find-rule-perl libnumber-compare-perl libtext-glob-perl perl libperl5.36 perl-modules-5.36"' \
  --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin "$1"/var/log/*' \
  bookworm "$work/base.tar" /etc/apt/sources.list.d/debian.sources
docker import -c 'CMD ["bash"]' "$work/base.tar" "$1"
