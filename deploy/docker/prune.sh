#!/bin/sh
# prune.sh SITE_PACKAGES: removes what no part of Trimtab uses.
# prune.sh SITE_PACKAGES agent: removes from an agent's image, or a worker's, the parts that run elsewhere.
set -eu
cd "$1"
if [ "${2:-}" = agent ]; then
  rm -rf trimtab_client trimtab_console trimtab_controller trimtab_models trimtab_sandbox ../../../bin/trimtab
  exit
fi
rm -rf numpy/*/tests numpy/tests pandas/tests pyarrow/include pyarrow/tests
# What the packages can do besides: schema registries, RPC and object stores of Arrow, a second backend of zstandard, and
# the generator of bindings, of which cryptography and PyNaCl need the run-time part alone.
rm -rf confluent_kafka/schema_registry confluent_kafka/avro confluent_kafka/kafkatest cffi pycparser \
  pyarrow/*flight* pyarrow/*s3* zstandard/_cffi.* zstandard/backend_cffi.py
# What Spark brings and a stream of reports does not use: Hive, machine learning, Spark Connect, RocksDB, other systems.
if [ -d pyspark ]; then
  cd pyspark/jars
  rm -rf ../examples ../data ./*breeze* ./cats-kernel* ./connect* ./datanucleus* ./derby* ./hive-* ./spark-connect* \
    ./spark-hive* ./spark-mllib* ./spire* ./algebra_* ./JTransforms* ./arpack* ./blas* ./lapack* ./rocksdbjni* \
    ./netty-*-osx-* ./netty-*-windows-*
fi
