# Rungs start their own ranks, one per GPU. By this job name Lightning does not take Slurm's single task for a rank.
export SLURM_JOB_NAME=interactive
"${python[@]}" -m facefeed.pipeline ladder "${arguments[@]}"
finish $?
