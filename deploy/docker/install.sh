#!/bin/sh
# Fills /opt/trimtab, a virtual environment without pip.
# install.sh EXTRA,EXTRA [PACKAGE...]: what these need, each download checked against its hash in requirements.lock.
# install.sh: the wheel.
set -eu
pip() { /opt/build/bin/pip --python /opt/trimtab/bin/python3 install --quiet --no-cache-dir --no-deps "$@"; }

if [ $# = 0 ]; then
  pip /wheels/trimtab-*.whl
  exit
fi
python3 -m venv --without-pip /opt/trimtab
python3 /opt/build/bin/locked.py "$@" > /tmp/locked.txt
pip --require-hashes -r /tmp/locked.txt
sh /opt/build/bin/prune.sh /opt/trimtab/lib/python3.11/site-packages
