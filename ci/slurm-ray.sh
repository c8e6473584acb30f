#!/usr/bin/env bash
# Parser regression over two versions of vLLM on the nodes of a Slurm allocation: sbatch ci/slurm-ray.sh
# Submit it from an environment that has vllm-harness[cluster], in a folder that all nodes see.
#SBATCH --job-name=vllm-harness
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=02:00:00
#SBATCH --output=vllm-harness-%j.log
set -euo pipefail

scratch=${SLURM_TMPDIR:-/tmp}/vllm-harness-$SLURM_JOB_ID # on the disk of each node, never on a shared one
export VLLM_HARNESS_CACHE=$scratch/cache VLLM_HARNESS_STATE=$scratch/state
run=${VLLM_HARNESS_RUN:-$PWD/run-$SLURM_JOB_ID}

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
port=$((20000 + SLURM_JOB_ID % 20000))
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | cut -d' ' -f1)
memory=$((SLURM_MEM_PER_NODE * 1024 * 1024 * 9 / 10))

start=(--num-cpus="$SLURM_CPUS_PER_TASK" --memory="$memory" --object-store-memory=1000000000 --block)
srun --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --node-ip-address="$address" --port="$port" --include-dashboard=false "${start[@]}" &
sleep 20 # until the head listens
if [ ${#nodes[@]} -gt 1 ]; then
    srun --nodes=$((${#nodes[@]} - 1)) --ntasks=$((${#nodes[@]} - 1)) --exclude="$head" \
        ray start --address="$address:$port" "${start[@]}" &
    sleep 20
fi
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$scratch"' EXIT

# --overlap: beside the ray processes, which hold the allocation's resources; a driver has to be on a node of the cluster
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
    vllm-harness regression --vllm 0.31.0,0.32.0 --engine http --ray "$address:$port" --run "$run"
