# Recipes for https://just.systems: `just` lists them. Words behind a recipe are overrides, as behind `brim train`:
#
#     just train model=mlp training.epochs=2
#     just train-all-robust seed=2
#
# $BRIM runs another program than the one that is built here.

set shell := ["bash", "-euo", "pipefail", "-c"]
set positional-arguments

root := justfile_directory()
brim := env("BRIM", root / "build/release/bin/brim")

# What train-all-robust trains: each model on each dataset.
models := "linear_probe lora"
datasets := "flowers102 cub200"

# What train-seeds starts from.
seeds := "1 2 3 4"

[private]
default:
    @'{{ just_executable() }}' --justfile '{{ justfile() }}' --list --unsorted

# install what brim, its tests and lint need; offer a commit hook
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

# build the program, as users run it
[group('develop')]
build:
    '{{ root }}/scripts/build.sh' release

# build and test: just test quick, just test, just test full
[group('develop')]
test *tier:
    @'{{ root }}/scripts/test.sh' "$@"

# check format and look for mistakes: just lint --changed
[group('develop')]
lint *words:
    @'{{ root }}/scripts/lint.sh' "$@"

# build the documentation as a site in build/site: just docs --serve
[group('develop')]
docs *words:
    @python3 '{{ root }}/scripts/site.py' "$@"

# brim beside PyTorch on this processor: just bench cnn --rounds 3
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

# look before running: devices, and whether the robust preset fits
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

# LoRA on the same
[group('robust')]
train-lora-flowers-robust *overrides: program
    @'{{ brim }}' train --config-name robust model=lora dataset=flowers102 optimizer.lr=1e-4 "$@"

# both on flowers and birds: four jobs side by side, then wait
[group('robust')]
train-all-robust *overrides: program
    #!/usr/bin/env bash
    # Each on one device; those that find none free wait for one. Fails if a job fails, when all have ended.
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

# one training on all GPUs of this machine
[group('distributed')]
train-dist *overrides: program
    @'{{ brim }}' train dist.ranks=auto "$@"

# one training on the machines of a hostfile, by mpirun
[group('distributed')]
train-nodes hostfile *overrides: program
    #!/usr/bin/env bash
    # mpirun passes on what is its own; these the ranks need too. BRIM_MPIRUN: where they go, and binding.
    set -euo pipefail
    hosts=$1
    shift
    pass=()
    for name in $(compgen -e); do
      [[ ! $name =~ ^(BRIM|NCCL|UCX|CUDA)_ ]] || pass+=(-x "$name")
    done
    read -ra more <<<"${BRIM_MPIRUN:---map-by slot --bind-to none}"
    exec mpirun --hostfile "$hosts" "${more[@]}" "${pass[@]}" '{{ brim }}' train "$@"

# from several seeds side by side: just seeds="1 2" train-seeds model=cnn
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
    # Options go to sbatch; the first other word is the name of one of scripts/slurm/*.sbatch, then come overrides.
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
