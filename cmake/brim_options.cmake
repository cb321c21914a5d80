# Compiler options of every target of brim.
function(brim_options target)
  # makes error messages name files relative to the source folder
  set(options -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wno-missing-field-initializers
      -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  if(BRIM_WERROR)
    list(APPEND options -Werror)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:${options}>"
                         "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>"
                         "$<$<COMPILE_LANGUAGE:C,CXX>:SHELL:-include ${PROJECT_SOURCE_DIR}/core/base/banned.h>")
  if(BRIM_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${BRIM_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=all)
    # gcc documents that sanitizers make this warning report variables that are initialized
    target_compile_options(${target} PRIVATE "$<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>")
    target_link_options(${target} PRIVATE -fsanitize=${BRIM_SANITIZE})
  endif()
endfunction()
