"""Batch scripts for a Slurm cluster: `facefeed slurm train` and `facefeed slurm precompute` write them.

In: a command's options, and what is asked of Slurm. Out: a batch script.
Must not know: Lightning, torch.

| file | what it holds |
|---|---|
| allocation | `Allocation`: what is asked of Slurm, checked, as the #SBATCH lines at the head of a script |
| script | `train_script`, `precompute_script`: whole scripts |
| again.sh | part of both: a job that was preempted, or is out of time, is queued again |
| train.sh, precompute.sh | what runs on the nodes |
| ranks, parsed | the options of the command that will run, checked when the script is written |
| cli | the commands |

The shell parts are fixed text. All that a user gave stands above them, quoted: for sbatch in the #SBATCH lines, for
bash in a few assignments.
"""
