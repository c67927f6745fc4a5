#!/bin/sh
# Runs the stream on a Spark cluster: stream.sh SPARK_SUBMIT_OPTION...   TRIMTAB_CONFIG names controller.toml.
set -eu
exec spark-submit --deploy-mode client --jars "$(ls -1 "$TRIMTAB_JARS"/spark/*.jar | paste -sd, -)" \
  --conf spark.driver.extraJavaOptions=-Xss16m --conf spark.ui.enabled=false "$@" \
  "$SPARK_HOME/../trimtab_controller/stream/__main__.py" --config "$TRIMTAB_CONFIG"
