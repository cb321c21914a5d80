# What every target of brim is compiled with.
function(brim_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes
                         -Wvla -Wno-missing-field-initializers)
  if(BRIM_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(BRIM_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${BRIM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${BRIM_SANITIZE})
  endif()
endfunction()

# A plugin: a module that takes what it needs of brim from the program that loads it.
#   brim_plugin(KIND ID SOURCES... ) -> target brim_KIND_ID, lib/brim/plugins/KIND/ID.so
function(brim_plugin kind id)
  set(target brim_${kind}_${id})
  add_library(${target} MODULE ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/core/include)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${id}
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${BRIM_PLUGIN_DIR}/${kind})
  brim_options(${target})
  install(TARGETS ${target} LIBRARY DESTINATION ${BRIM_PLUGIN_DIR}/${kind})
endfunction()
