# Memory is looked after by precompute's slots, not by Dask.
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False
export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=60s
export DASK_LOGGING__DISTRIBUTED=critical

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${python[@]}" -m dask scheduler --port 0 --no-dashboard "${interface[@]}" --scheduler-file "$scratch/scheduler" &
scheduler=$!
until [[ -s $scratch/scheduler ]]; do
    kill -0 $scheduler || finish 1
    sleep 1
done
address=$("${python[@]}" -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$scratch/scheduler")

"${python[@]}" -m facefeed.pipeline.cli precompute "${arguments[@]}" --scheduler "$address" &
driver=$!
# Asked to stop, the driver keeps what is done. This script is told before the time limit, and when Slurm ends the job.
trap 'kill -TERM $driver' USR1
trap 'told_to_end=yes; kill -TERM $driver' TERM
until_ended() {
    srun --overlap --kill-on-bad-exit=0 --wait=0 "$@"
    kill -TERM $driver 2>/dev/null
}
# On preemption all steps get SIGTERM at once. Workers block it: a driver that loses them before it has stopped takes
# what they were at for harmful, and splits it. A step of its own, that does nothing, passes the signal on.
until_ended --nodes=1 --ntasks=1 --cpus-per-task=1 sleep infinity &
bell=$!
blocking='import runpy, signal
from multiprocessing import resource_tracker
resource_tracker.ensure_running()  # when it starts it unblocks the signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
runpy.run_module("dask", run_name="__main__")'
until_ended --cpus-per-task="$cpus_per_task" "${gpus_per_task[@]}" \
    "${python[@]}" -c "$blocking" worker "$address" --nthreads 1 --no-dashboard "${interface[@]}" \
    --death-timeout 60 --local-directory "${TMPDIR:-/tmp}" &
workers=$!

# A trapped signal ends a wait early; the last one, for a driver that is gone, gives its status.
while kill -0 $driver 2>/dev/null; do wait $driver; done
wait $driver
status=$?
scancel --signal=KILL "$SLURM_JOB_ID.0" "$SLURM_JOB_ID.1" 2>/dev/null
kill -TERM $scheduler 2>/dev/null
wait $bell $workers $scheduler
finish $status
