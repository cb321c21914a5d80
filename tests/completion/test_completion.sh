#!/usr/bin/env bash
# Tests TAB completion. Usage: test_completion.sh COMPLETIONS BRIM
set -u
source "$1"
brim=$2
failed=0 passed=0

# Calls the completion as bash does for the line; the candidates are left in COMPREPLY.
offers() {
  COMP_LINE="$brim $1"
  COMP_POINT=${#COMP_LINE}
  COMP_WORDS=("$brim")
  COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
  COMPREPLY=()
  _brim
}

check() { # WHAT CONDITION
  if [[ $2 -eq 0 ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $1; offered: ${COMPREPLY[*]-}"
  fi
}

exactly() { # LINE OFFERS...
  offers "$1"
  local line=$1
  shift
  [[ "${COMPREPLY[*]-}" == "$*" ]]
  check "'brim $line' offers '$*'" $?
}

includes() { # LINE OFFERS...
  offers "$1"
  local want
  for want in "${@:2}"; do
    printf '%s\n' "${COMPREPLY[@]-}" | grep -qxF -- "$want"
    check "'brim $1' offers '$want' among others" $?
  done
}

excludes() { # LINE OFFERS...
  offers "$1"
  local other
  for other in "${@:2}"; do
    ! printf '%s\n' "${COMPREPLY[@]-}" | grep -qxF -- "$other"
    check "'brim $1' does not offer '$other'" $?
  done
}

# commands and options
exactly trai train
includes "" train plan config plugins compare version
exactly "--config-p" --config-path
exactly "--config-path my pla" plan
exactly "--config-path " # the shell completes the folder itself
includes "train -" --resume --from -m --multirun --fail-fast --debug-launches --quiet --help
excludes "train -" --job
exactly "train --resu" --resume
exactly "train --resume " # a folder
exactly "compare --js" --json
exactly "nonsense "
exactly "eval " # the shell completes the run's folder itself
exactly "eval runs/a --sp" --split
includes "eval runs/a " optimizer.lr=
includes "predict -" --checkpoint -o --json
exactly "new " aggregator augment dataset loss model optimizer policy schedule selector
exactly "new mo" model
exactly "new model "
exactly "new --in" --into

# groups and their options
exactly "train mod" model= model.width= model.dropout1= model.dropout2= model.weights= model.weights_map= \
  model.weights_except=
exactly "train model=m" mental_state mlp
includes "train dataset=" fashion_mnist mnist synthetic
exactly "train +schedule=cos" cosine
includes "train graph.fuse=" all none residual_norm

# keys, which follow the choices made
exactly "train optimizer.l" optimizer.lr=
exactly "train model=mlp model." model.hidden= model.dropout= model.weights= model.weights_map= model.weights_except=
exactly "train model=mlp,cnn -m model.h" model.hidden=
exactly "train dataset=synthetic dataset.noi" dataset.noise=
exactly "train '+optimizer.w" +optimizer.weight_decay=
exactly "train ++optimizer.w" ++optimizer.weight_decay=
exactly "train ~optimizer.w" "~optimizer.weight_decay"
exactly "plan training.gradient_acc" training.gradient_accumulation_steps=

# values
exactly "train augment.flip=" true false
exactly "train augment.flip=f" false
exactly "train optimizer.lr="
exactly "train -m model=mlp,cn" mlp,cnn
exactly "train model=mlp,cn"
exactly "plugins model/m" model/mental_state model/mlp

# everything in the schema is offered
count=0
while read -r key; do
  offers "train $key"
  printf '%s\n' "${COMPREPLY[@]-}" | grep -qxF -- "$key="
  check "the key $key is offered" $?
  count=$((count + 1))
done < <("$brim" config --schema seed=1 | sed 's/ .*//' | grep .)
[[ $count -ge 30 ]]
check "the schema was read: $count keys" $?

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
