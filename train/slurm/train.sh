# A task is a rank. --wait: when one ends, the others have a minute; otherwise they would wait for a crashed rank forever.
# --kill-on-bad-exit=0: otherwise srun would kill them at once, even while the first rank saves.
# --export=ALL: otherwise, where sbatch was given --export, the ranks lack what this script exports.
srun --export=ALL --cpus-per-task="$cpus_per_task" --kill-on-bad-exit=0 --wait=60 \
    "${python[@]}" -m facefeed.pipeline train "${arguments[@]}"
finish $?
