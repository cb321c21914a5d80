# CPack runs this when the files of the packages are in place. It compresses manual pages and changelogs, as Debian
# requires.
find_program(gzip gzip REQUIRED)
file(GLOB_RECURSE files ${CPACK_TEMPORARY_DIRECTORY}/*)
foreach(file IN LISTS files)
  if(file MATCHES "/changelog\\.Debian$|/share/man/man[1-9]/[^/]*[1-9]$")
    execute_process(COMMAND ${gzip} --best --no-name --force ${file} COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
