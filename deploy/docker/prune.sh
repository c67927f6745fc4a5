#!/bin/sh
# prune.sh SITE_PACKAGES: removes what no part of Trimtab uses.
set -eu
cd "$1"
rm -rf numpy/*/tests numpy/tests pandas/tests pyarrow/include pyarrow/tests
# What Spark brings and a stream of reports does not use: Hive, machine learning, Spark Connect, RocksDB, other systems.
if [ -d pyspark ]; then
  cd pyspark/jars
  rm -rf ../examples ./*breeze* ./cats-kernel* ./connect* ./datanucleus* ./derby* ./hive-* ./spark-connect* \
    ./spark-hive* ./spark-mllib* ./spire* ./algebra_* ./JTransforms* ./arpack* ./blas* ./lapack* ./rocksdbjni* \
    ./netty-*-osx-* ./netty-*-windows-*
fi
