#!/usr/bin/env fish
# Tests the completion for fish. Usage: test_completion.fish COMPLETIONS BRIM
source $argv[1]
set -g failed 0
set -g passed 0
set PATH (dirname $argv[2]) $PATH

function exactly # LINE OFFERS...
    set -l offered (complete -C "brim $argv[1]" | string replace -r '\t.*' '')
    set -l wanted $argv[2..]
    if test "$offered" = "$wanted"
        set -g passed (math $passed + 1)
    else
        set -g failed (math $failed + 1)
        echo "FAILED: 'brim $argv[1]' offers '$offered', not '$wanted'"
    end
end

cd (mktemp -d)
touch afile
exactly trai train
exactly --config-p --config-path
exactly 'train --resu' --resume
exactly 'train --resume a' afile
exactly 'train model=m' model=mental_state model=mlp
exactly 'train optimizer.l' optimizer.lr=
exactly 'train -m model=mlp,cn' model=mlp,cnn
exactly 'train augment.flip=f' augment.flip=false
rm -r $PWD

echo "$passed passed, $failed failed"
test $failed -eq 0
