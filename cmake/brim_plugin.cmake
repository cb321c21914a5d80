# brim_plugin(KIND ID SOURCES...) adds the module brim_KIND_ID, built to lib/brim/plugins/KIND/ID.so and installed there.
#
# A plugin takes brim's functions from the program that loads it, so it links nothing of brim; it needs the headers only.
# This file serves brim's own plugins and, installed, those of other projects:
#
#     find_package(brim REQUIRED)
#     brim_plugin(model mymodel mymodel.c)
#
# `brim --plugin-path BUILD/lib/brim/plugins` then finds it; `cmake --install` puts it beside brim's own if the prefixes
# are the same.
function(brim_plugin kind id)
  set(target brim_${kind}_${id})
  set(folder lib/brim/plugins/${kind})
  add_library(${target} MODULE ${ARGN})
  target_link_libraries(${target} PRIVATE brim::sdk)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${id} SUFFIX .so C_VISIBILITY_PRESET hidden
                        CXX_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder})
  install(TARGETS ${target} LIBRARY DESTINATION ${folder})
  if(COMMAND brim_options) # brim's own
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
    brim_options(${target})
  endif()
endfunction()
