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

[private]
default:
    @'{{ just_executable() }}' --justfile '{{ justfile() }}' --list --unsorted

# install what brim and its tests are built from
[group('develop')]
setup:
    '{{ root }}/scripts/setup.sh' test

# build the program, as users run it
[group('develop')]
build:
    '{{ root }}/scripts/build.sh' release

# build and run every test; TEST_PRESETS=release for those without sanitizers
[group('develop')]
test:
    '{{ root }}/scripts/test.sh'

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
    # Fails if a job fails, when all have ended. Ctrl-C reaches the jobs by itself; a second one ends them at once.
    set -euo pipefail
    jobs=()
    trap : INT
    trap 'kill -TERM "${jobs[@]}" 2>/dev/null || true' TERM
    for dataset in {{ datasets }}; do
      for model in {{ models }}; do
        name=$model-$dataset
        '{{ brim }}' train --config-name robust "model=$model" "dataset=$dataset" "run.name=$name" "$@" \
          > >(trap '' INT TERM; exec sed -u "s/^/$name: /") 2>&1 &
        jobs+=($!)
      done
    done
    status=0
    for job in "${jobs[@]}"; do
      while true; do
        code=0
        wait "$job" || code=$?
        kill -0 "$job" 2>/dev/null || break # a signal ends a wait before the job
      done
      ((code == 0)) || status=$code
    done
    exit "$status"
