# Slurm sends this script SIGTERM when it ends the job itself: scancel, scontrol requeue, the time limit. Whether the job
# comes back is decided then, and nothing is left to do here but to end.
told_to_end=
trap 'told_to_end=yes' TERM

# Whether the job is being preempted, or is close to its time limit.
is_ending() {
    local job now
    job=$(SLURM_TIME_FORMAT=%s scontrol show job -o "$SLURM_JOB_ID") || return 1
    now=$(date +%s)
    [[ $job =~ \ PreemptTime=[0-9] ]] && return 0
    [[ $job =~ \ EndTime=([0-9]+) ]] && ((BASH_REMATCH[1] - now < warn_seconds + 90))
}

# Ends the job with the status of its run. What was cut short goes back into the queue under the same number, where the
# same command will go on; what stopped for another reason (a full disk, a signal sent by hand) is held there until
# somebody has looked, since it might stop at once, for ever.
finish() {
    local status=$1
    if [[ $status == 0 || -n $told_to_end ]]; then
        exit "$status"
    elif is_ending; then
        echo "$(date +%FT%T) cut short with status $status; job $SLURM_JOB_ID goes back into the queue" >&2
        scontrol requeue "$SLURM_JOB_ID"
    elif [[ $status == 75 || $status == 130 ]]; then
        echo "$(date +%FT%T) stopped with status $status; to go on: scontrol release $SLURM_JOB_ID" >&2
        scontrol requeuehold "$SLURM_JOB_ID"
    fi
    exit "$status"
}
