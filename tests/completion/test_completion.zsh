#!/usr/bin/env zsh
# Tests the completion for zsh. Usage: test_completion.zsh COMPLETIONS BRIM
#
# compadd and _files, which only a completion widget may call, are replaced by functions that record the candidates.
emulate -L zsh
program=$2
fpath=(${1:h} $fpath)
integer failed=0 passed=0
typeset -a offered
typeset spaced

compadd() {
  [[ $1 == -Q ]] && shift
  if [[ $1 == -S ]]; then
    spaced=no
    shift 2
  fi
  shift # --
  offered+=("$@")
}
_files() { offered+=(FILES) }

exactly() { # LINE OFFERS...
  typeset -a words
  typeset PREFIX
  integer CURRENT
  words=($program ${(z)1})
  [[ $1 == *' ' || -z $1 ]] && words+=('')
  CURRENT=${#words}
  PREFIX=${words[CURRENT]}
  offered=()
  spaced=yes
  autoload -Uz _brim
  _brim
  local line=$1
  shift
  if [[ "$offered" == "$*" ]]; then
    passed+=1
  else
    failed+=1
    print -r "FAILED: 'brim $line' offers '$offered', not '$*'"
  fi
}

exactly trai train
exactly --config-p --config-path
exactly 'train --resu' --resume
exactly 'train --resume ' FILES
exactly 'nonsense ' FILES
exactly 'train model=m' model=mental_state model=mlp
exactly 'train optimizer.l' optimizer.lr=
[[ $spaced == no ]] && passed+=1 || { failed+=1; print "FAILED: a value follows optimizer.lr= with a space" }
exactly 'train -m model=mlp,cn' model=mlp,cnn
exactly 'train augment.flip=f' augment.flip=false

print "$passed passed, $failed failed"
(( failed == 0 ))
