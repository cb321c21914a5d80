# Fish completion for brim: commands, options, groups, their options, keys and values.
#
# fish finds this file in share/fish/vendor_completions.d; without installation, copy it to ~/.config/fish/completions.
# Each press of TAB asks `brim complete`, so the candidates are always up to date. If brim has none, fish completes file
# names.

function __brim_complete
    set -l program (commandline -opc)[1]
    set -l candidates ($program complete -- (commandline -cp) 2>/dev/null)
    if test (count $candidates) -gt 0
        printf '%s\n' $candidates
    else
        __fish_complete_path (commandline -ct)
    end
end

complete -c brim -f -a '(__brim_complete)'
