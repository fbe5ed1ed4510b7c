#!/bin/sh
# EpilogSlurmctld: deletes the job that prolog.sh has created.
. "$(dirname "$0")/innet.conf"
export PATH INNET_CONTROLLER INNET_TLS="${USERS_TLS:+$USERS_TLS/$SLURM_JOB_USER}"

name=slurm-$SLURM_JOB_ID
[ -e "$TOKENS/$name" ] || exit 0
innet job delete "$name" && rm -f "$TOKENS/$name"
