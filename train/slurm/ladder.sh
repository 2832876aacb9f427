# Its rungs start their own ranks, a GPU each; by the job's name Lightning sees that Slurm's one task is none of them.
export SLURM_JOB_NAME=interactive
"${python[@]}" -m facefeed.pipeline.cli ladder "${arguments[@]}"
finish $?
