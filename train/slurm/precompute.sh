# precompute limits memory by its slots, so Dask's own limits are disabled.
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False
export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=60s
export DASK_LOGGING__DISTRIBUTED=critical

scratch=$(mktemp -d)
# Whoever can connect to the scheduler or to a worker runs code as this user. So all connections are TLS, with a
# certificate made for this job, in a file that only this user may read, in the folder of its log: all nodes see it.
certificate=$PWD/.facefeed-precompute-$SLURM_JOB_ID.pem
trap 'rm -rf "$scratch" "$certificate"' EXIT
"${python[@]}" -m facefeed.pipeline.execution.certificate "$certificate" || finish 1
export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$certificate
export DASK_DISTRIBUTED__COMM__TLS__{SCHEDULER,WORKER,CLIENT}__CERT="$certificate"
# Dask's own pages ask nobody who they are.
export DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES=[] DASK_DISTRIBUTED__WORKER__HTTP__ROUTES=[]

"${python[@]}" -m dask scheduler --protocol tls --port 0 --no-dashboard "${interface[@]}" --scheduler-file "$scratch/scheduler" &
scheduler=$!
until [[ -s $scratch/scheduler ]]; do
    kill -0 $scheduler || finish 1
    sleep 1
done
address=$("${python[@]}" -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$scratch/scheduler")

"${python[@]}" -m facefeed.pipeline precompute "${arguments[@]}" --scheduler "$address" &
driver=$!
# On SIGTERM the driver keeps finished work. Slurm signals this script before the time limit, and when it ends the job.
trap 'kill -TERM $driver' USR1
trap 'terminated_by_slurm=yes; kill -TERM $driver' TERM
# --export=ALL: else, where sbatch was given --export, the steps lack what was exported here, such as the certificate.
run_until_it_ends() {
    srun --export=ALL --overlap --kill-on-bad-exit=0 --wait=0 "$@"
    kill -TERM $driver 2>/dev/null
}
# On preemption all steps get SIGTERM at once. Workers block it: a driver that loses them before it has stopped would
# blame their units, and split them. A separate idle step receives the signal, and its end stops the driver.
run_until_it_ends --nodes=1 --ntasks=1 --cpus-per-task=1 sleep infinity &
signal_step=$!
blocking='import runpy, signal
from multiprocessing import resource_tracker
resource_tracker.ensure_running()  # its start unblocks the signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
runpy.run_module("dask", run_name="__main__")'
run_until_it_ends --cpus-per-task="$cpus_per_task" "${gpus_per_task[@]}" \
    "${python[@]}" -c "$blocking" worker "$address" --nthreads 1 --no-dashboard "${interface[@]}" \
    --death-timeout 60 --local-directory "${TMPDIR:-/tmp}" &
workers=$!

# A trapped signal ends a wait early; the last wait, after the driver has ended, returns its status.
while kill -0 $driver 2>/dev/null; do wait $driver; done
wait $driver
status=$?
scancel --signal=KILL "$SLURM_JOB_ID.0" "$SLURM_JOB_ID.1" 2>/dev/null
kill -TERM $scheduler 2>/dev/null
wait $signal_step $workers $scheduler
finish $status
