#!/bin/sh
# TaskProlog: gives every task of the user what it needs to join the job.
. "$(dirname "$0")/innet.conf"

name=slurm-$SLURM_JOB_ID
[ -r "$TOKENS/$name" ] || exit 0
echo "export INNET_CONTROLLER=$INNET_CONTROLLER"
echo "export INNET_JOB=$name"
echo "export INNET_TOKEN=$(cat "$TOKENS/$name")"
[ -z "$WORKER_TLS" ] || echo "export INNET_TLS=$WORKER_TLS"
