# Recipes for https://just.systems: `just` lists them. Words after a recipe are overrides, as for `brim train`:
#
#     just train model=mlp training.epochs=2
#     just train-all-robust seed=2
#
# $BRIM names another program to run than the one built here.

set shell := ["bash", "-euo", "pipefail", "-c"]
set positional-arguments

root := justfile_directory()
brim := env("BRIM", root / "build/release/bin/brim")

# train-all-robust trains each model on each dataset
models := "linear_probe lora"
datasets := "flowers102 cub200"

# the seeds of train-seeds
seeds := "1 2 3 4"

[private]
default:
    @'{{ just_executable() }}' --justfile '{{ justfile() }}' --list --unsorted

# install the dependencies of brim, its tests and lint; offer a commit hook
[group('develop')]
setup:
    #!/usr/bin/env bash
    set -euo pipefail
    '{{ root }}/scripts/setup.sh' lint
    hooks=$(git -C '{{ root }}' config core.hooksPath || true)
    if [[ -z $hooks && -t 0 ]]; then
      read -rp "lint the changed files before each commit? [y/N] " answer
      [[ $answer != [yY]* ]] || git -C '{{ root }}' config core.hooksPath scripts/hooks
    elif [[ -z $hooks ]]; then
      echo "to lint the changed files before each commit: git config core.hooksPath scripts/hooks"
    fi

# build the program in release mode
[group('develop')]
build:
    '{{ root }}/scripts/build.sh' release

# build and test: just test quick, just test, just test full
[group('develop')]
test *tier:
    @'{{ root }}/scripts/test.sh' "$@"

# check the format and run static checks: just lint --changed
[group('develop')]
lint *words:
    @'{{ root }}/scripts/lint.sh' "$@"

# build the pages as a site: just docs --serve
[group('develop')]
docs *words:
    @python3 '{{ root }}/scripts/site.py' "$@"

# compare brim with PyTorch on this CPU: just bench cnn --rounds 3
[group('develop')]
bench *words: program
    @BRIM_BINARY='{{ brim }}' python3 '{{ root }}/scripts/bench/speed.py' "$@"

[private]
program:
    @[[ -n ${BRIM:-} ]] || '{{ root }}/scripts/build.sh' release

# train: just train model=mlp training.epochs=2
[group('run')]
train *overrides: program
    @'{{ brim }}' train "$@"

# show the memory of a run before it starts
[group('run')]
plan *overrides: program
    @'{{ brim }}' plan "$@"

# check before running: devices, and whether the robust preset fits
[group('run')]
check *overrides: program
    @'{{ brim }}' devices
    @'{{ brim }}' plan --config-name robust "$@"

# train every combination: just sweep model=mlp,cnn seed=1,2
[group('run')]
sweep *overrides: program
    @'{{ brim }}' train -m "$@"

# a linear probe on Oxford's 102 flowers, sharing the machine
[group('robust')]
train-linear-flowers-robust *overrides: program
    @'{{ brim }}' train --config-name robust model=linear_probe dataset=flowers102 "$@"

# LoRA on the same data
[group('robust')]
train-lora-flowers-robust *overrides: program
    @'{{ brim }}' train --config-name robust model=lora dataset=flowers102 optimizer.lr=1e-4 "$@"

# both on flowers and birds: four jobs in parallel, then wait
[group('robust')]
train-all-robust *overrides: program
    #!/usr/bin/env bash
    # Each job uses one device, and waits if none is free. When all have ended, fails if one has failed.
    set -euo pipefail
    lines() {
      for dataset in {{ datasets }}; do
        for model in {{ models }}; do
          name=$model-$dataset
          echo "$name model=$model dataset=$dataset run.name=$name"
        done
      done
    }
    exec '{{ root }}/scripts/side_by_side.sh' '{{ brim }}' train --config-name robust dist.ranks=1 "$@" < <(lines)

# one run on all GPUs of this machine
[group('distributed')]
train-dist *overrides: program
    @'{{ brim }}' train dist.ranks=auto "$@"

# one run on the machines of a hostfile, with mpirun
[group('distributed')]
train-nodes hostfile *overrides: program
    #!/usr/bin/env bash
    # mpirun passes on only its own variables, but ranks need these too. BRIM_MPIRUN: mapping and binding options.
    set -euo pipefail
    hosts=$1
    shift
    pass=()
    for name in $(compgen -e); do
      [[ ! $name =~ ^(BRIM|NCCL|UCX|CUDA)_ ]] || pass+=(-x "$name")
    done
    read -ra more <<<"${BRIM_MPIRUN:---map-by slot --bind-to none}"
    exec mpirun --hostfile "$hosts" "${more[@]}" "${pass[@]}" '{{ brim }}' train "$@"

# train with several seeds at once: just seeds="1 2" train-seeds model=cnn
[group('distributed')]
train-seeds *overrides: program
    #!/usr/bin/env bash
    set -euo pipefail
    exec '{{ root }}/scripts/side_by_side.sh' '{{ brim }}' train dist.ranks=1 'run.name=seed-${seed}' "$@" \
      < <(for seed in {{ seeds }}; do echo "seed-$seed seed=$seed"; done)

# a batch job of scripts/slurm: just sbatch --nodes=4 nodes model=vit
[group('distributed')]
sbatch *words: program
    #!/usr/bin/env bash
    # Options go to sbatch; the first other word names one of scripts/slurm/*.sbatch; the rest are overrides.
    set -euo pipefail
    options=()
    while [[ ${1:-} == -* ]]; do
      options+=("$1")
      shift
    done
    script='{{ root }}'/scripts/slurm/${1:-}.sbatch
    if [[ ! -e $script ]]; then
      echo "usage: just sbatch [OPTION=VALUE]... node|nodes|cpu|four|seeds [OVERRIDE]..." >&2
      exit 2
    fi
    shift
    BRIM='{{ brim }}' BRIM_ROOT='{{ root }}' exec sbatch "${options[@]}" "$script" "$@"
