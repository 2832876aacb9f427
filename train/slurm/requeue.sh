# Slurm sends this script SIGTERM when it ends the job itself: scancel, scontrol requeue, the time limit. Slurm then
# decides whether the job is requeued, and the script only has to exit.
terminated_by_slurm=
trap 'terminated_by_slurm=yes' TERM

# Whether a run with this status was cut short: the job is being preempted, or the run stopped by itself or by a signal
# close to the time limit. An error of its own there (no memory in the first validation) would come again, forever.
was_cut_short() {
    local status=$1 job now
    job=$(SLURM_TIME_FORMAT=%s scontrol show job -o "$SLURM_JOB_ID") || return 1
    now=$(date +%s)
    [[ $job =~ \ PreemptTime=[0-9] ]] && return 0
    [[ $status == 75 ]] || ((status >= 128)) || return 1
    [[ $job =~ \ EndTime=([0-9]+) ]] && ((BASH_REMATCH[1] - now < warn_seconds + 90))
}

# Exits with the status of the run. A run that was cut short is requeued under the same job id, and the same command
# resumes it. A run that stopped for another reason (a full disk, a signal sent by hand) is requeued and held until a
# person releases it, since it might stop again at once, forever.
finish() {
    local status=$1
    if [[ $status == 0 || -n $terminated_by_slurm ]]; then
        exit "$status"
    elif was_cut_short "$status"; then
        echo "$(date +%FT%T) cut short with status $status; job $SLURM_JOB_ID goes back into the queue" >&2
        scontrol requeue "$SLURM_JOB_ID"
    elif [[ $status == 75 || $status == 130 ]]; then
        echo "$(date +%FT%T) stopped with status $status; to resume: scontrol release $SLURM_JOB_ID" >&2
        scontrol requeuehold "$SLURM_JOB_ID"
    fi
    exit "$status"
}
