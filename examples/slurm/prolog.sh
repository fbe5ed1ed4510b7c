#!/bin/sh
# PrologSlurmctld: creates a job of innet for a job of Slurm with `--comment innet:WORKERS[@SWITCH]`. The job
# belongs to the user, because the user's own certificate creates it. If this fails, Slurm does not start the job.
set -eu
. "$(dirname "$0")/innet.conf"
export PATH INNET_CONTROLLER INNET_TLS="${USERS_TLS:+$USERS_TLS/$SLURM_JOB_USER}"

case "${SLURM_JOB_COMMENT:-}" in
    innet:*) wanted=${SLURM_JOB_COMMENT#innet:} ;;
    *) exit 0 ;;
esac
workers=${wanted%%@*}
[ "$workers" = "$wanted" ] || SWITCH=${wanted#*@}

name=slurm-$SLURM_JOB_ID
token=$TOKENS/$name
if [ -e "$token" ]; then # of an attempt before a requeue
    innet job delete "$name" || true
    rm "$token"
fi
innet job create "$name" --switch "$SWITCH" --workers "$workers" --token-file "$token"
chown "$SLURM_JOB_UID" "$token"
