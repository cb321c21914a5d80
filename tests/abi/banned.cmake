# Compiles a call of each banned function, in C and in C++, and expects the compiler to refuse it by name; a harmless
# call must pass. Needs CC, CXX, HEADER and FOLDER.
file(MAKE_DIRECTORY ${FOLDER})
set(calls "strcpy(b, \"x\")" "strcat(b, \"x\")" "strncpy(b, \"x\", 1)" "strncat(b, \"x\", 1)" "sprintf(b, \"x\")"
          "strtok(b, \"x\")" "atoi(b)" "atol(b)" "atoll(b)" "atof(b)" "gets(b)" "snprintf(b, sizeof b, \"x\")")

function(compile compiler standard extension call)
  string(REGEX REPLACE "[(].*" "" name "${call}")
  set(source ${FOLDER}/${name}.${extension})
  file(WRITE ${source} "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
                       "int main(void)\n{\n  char b[8] = \"1\";\n  (void)${call};\n  return 0;\n}\n")
  execute_process(COMMAND ${compiler} -std=${standard} -Wall -Wextra -Wpedantic -include ${HEADER} -fsyntax-only
                          ${source}
                  RESULT_VARIABLE failed ERROR_VARIABLE errors)
  if(name STREQUAL "snprintf")
    if(failed)
      message(SEND_ERROR "${compiler} refuses snprintf:\n${errors}")
    endif()
  elseif(NOT failed OR NOT errors MATCHES "${name}[^\n]*is unavailable: banned in brim")
    message(SEND_ERROR "${compiler} ${standard} lets ${name} pass, or says something else:\n${errors}")
  endif()
endfunction()

foreach(call IN LISTS calls)
  compile(${CC} c17 c "${call}")
  compile(${CXX} c++17 cpp "${call}")
endforeach()
