"""Batch scripts for a Slurm cluster: `facefeed slurm train` and `facefeed slurm precompute` write them.

In: a command's options, and the resources requested from Slurm. Out: a batch script.
Must not know: Lightning, torch.

| file | what it holds |
|---|---|
| allocation | `Allocation`: the requested resources, validated, as #SBATCH lines |
| script | `train_script`, `precompute_script`, `ladder_script`: complete scripts |
| requeue.sh | part of each script: requeues a job that was preempted or is out of time |
| train.sh, precompute.sh, ladder.sh | what runs on the nodes |
| ranks, command_options | validation of the command's options when the script is written |
| cli | the commands |

The shell parts are fixed text. All values given by the user are above them, quoted: for sbatch in the #SBATCH lines,
for bash in a few assignments.
"""
