#!/bin/sh
# Certificates for a Dask cluster of one's own: one authority, and one key that scheduler, workers and sessions all use.
# sh docs/cluster-tls.sh FOLDER [DAYS]; needs the program openssl. Copy FOLDER to every host, readable by you alone.
set -eu
umask 077
mkdir -p "$1"
cd "$1"
days="${2:-365}"
openssl req -x509 -newkey rsa:3072 -nodes -days "$days" -subj "/CN=narrowdown cluster" -keyout authority-key.pem -out ca.pem
openssl req -newkey rsa:3072 -nodes -subj "/CN=narrowdown" -keyout key.pem -out request.pem
openssl x509 -req -in request.pem -CA ca.pem -CAkey authority-key.pem -CAcreateserial -days "$days" -out cert.pem
rm -f request.pem ca.srl
{
    echo 'here="${CLUSTER_CERTIFICATES:-'"$(pwd)"'}"'
    echo 'export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=true'
    echo 'export DASK_DISTRIBUTED__COMM__TLS__CA_FILE="$here/ca.pem"'
    for part in SCHEDULER WORKER CLIENT; do
        echo "export DASK_DISTRIBUTED__COMM__TLS__${part}__CERT=\"\$here/cert.pem\""
        echo "export DASK_DISTRIBUTED__COMM__TLS__${part}__KEY=\"\$here/key.pem\""
    done
} > environment
echo "Before dask and narrowdown, on every host: . $(pwd)/environment"
