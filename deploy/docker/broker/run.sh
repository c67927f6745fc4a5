#!/bin/sh
# Formats an empty data folder, then becomes the broker: one node, KRaft.
set -eu
settings=/opt/kafka/server.properties
if [ ! -f /var/lib/kafka/data/meta.properties ]; then
  java -Xmx256m -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties -cp '/opt/kafka/libs/*' \
    kafka.tools.StorageTool format -t "$(head -c 16 /dev/urandom | base64 | tr '+/' 'AB' | tr -d =)" -c "$settings"
fi
exec java -Xmx"${KAFKA_HEAP:-384m}" -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError \
  -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties -cp '/opt/kafka/libs/*' kafka.Kafka "$settings"
