# What every target of brim is compiled with.
function(brim_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wno-missing-field-initializers
                         -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/= # errors name files without this machine's folders
                         "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>"
                         "SHELL:-include ${PROJECT_SOURCE_DIR}/core/base/banned.h")
  if(BRIM_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(BRIM_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${BRIM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${BRIM_SANITIZE})
  endif()
endfunction()
