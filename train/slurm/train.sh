# A task is a rank. --wait: when one ends, the others have a minute; without it a crashed one would keep all nodes waiting.
# --kill-on-bad-exit=0: it would end them at once, even while the first of them saves.
srun --cpus-per-task="$cpus_per_task" --kill-on-bad-exit=0 --wait=60 \
    "${python[@]}" -m facefeed.pipeline.cli train "${arguments[@]}"
finish $?
