# CMake functions for plugins, used by brim itself and, when installed, by other projects:
#
#     find_package(brim REQUIRED)
#     enable_testing()
#     brim_plugin(policy night_shift night_shift.c)
#     brim_plugin_test(policy night_shift dataset=synthetic EXPECT "night_shift: ")
#
# `brim new` writes such a project. Its build folder has the layout of an installation, so `brim --plugin-path build`
# finds the plugins and configurations of the project. `cmake --install` with brim's prefix adds them to brim's own.

# brim_plugin(KIND ID SOURCES...) adds the module brim_KIND_ID, and builds and installs it as
# lib/brim/plugins/KIND/ID.so. A plugin takes brim's functions from the program that loads it: it needs brim's headers,
# but links no library of brim.
#
# If there is a folder `configs` next to the CMakeLists.txt, its configurations are installed too:
# configs/KIND/NAME.yaml becomes the option KIND=NAME. The build folder links to them, so edits take effect at once.
function(brim_plugin kind id)
  set(target brim_${kind}_${id})
  set(folder lib/brim/plugins/${kind})
  add_library(${target} MODULE ${ARGN})
  target_link_libraries(${target} PRIVATE brim::sdk)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${id} SUFFIX .so C_VISIBILITY_PRESET hidden
                        CXX_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder})
  install(TARGETS ${target} LIBRARY DESTINATION ${folder})
  if(COMMAND brim_options) # brim's own
    set_property(GLOBAL APPEND PROPERTY BRIM_PLUGINS ${target})
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
    brim_options(${target})
  else() # optimises unless the user names a build type
    target_compile_options(${target} PRIVATE "$<$<CONFIG:>:-O2;-g>")
  endif()
  file(GLOB_RECURSE configs CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/configs configs/*.yaml)
  foreach(config IN LISTS configs)
    cmake_path(GET config PARENT_PATH group)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/brim/configs/${group})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/configs/${config} ${CMAKE_BINARY_DIR}/share/brim/configs/${config}
         COPY_ON_ERROR SYMBOLIC)
    install(FILES configs/${config} DESTINATION share/brim/configs/${group})
  endforeach()
endfunction()

# brim_command_test(NAME WORD... [EXPECT REGEX...]) adds a test: `brim WORD...` with the plugins of this project must
# exit with status 0, and its output must match each REGEX (CMake's syntax). It runs in an empty folder.
function(brim_command_test name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "" "EXPECT")
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/tests/${name})
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} "-DEXPECT=${test_EXPECT}" -DFOLDER=${folder}
           -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/brim_command_test.cmake -- ${brim_EXECUTABLE}
           --plugin-path ${CMAKE_BINARY_DIR} ${test_UNPARSED_ARGUMENTS})
endfunction()

# brim_plugin_test(KIND ID [WORD...] [EXPECT REGEX...]) adds tests of a plugin: ID_check runs it on edge cases (`brim
# check`), ID_plugins has brim find it, ID_plan plans with it, and ID_train trains two steps, or two rounds of a
# federation. The last two use the overrides KIND=ID WORD... (method=ID for a selector, augmentation=ID for an augment);
# the output of ID_train must match each REGEX.
function(brim_plugin_test kind id)
  cmake_parse_arguments(PARSE_ARGV 2 test "" "" "EXPECT")
  set(group ${kind})
  set(plan plan)
  set(train train training.steps=2)
  if(kind STREQUAL selector)
    set(group method)
  elseif(kind STREQUAL augment)
    set(group augmentation)
  endif()
  if(kind MATCHES "^(selector|aggregator)$")
    set(plan --config-name federate plan)
    set(train federate rounds=2)
  endif()
  set(words ${group}=${id} ${test_UNPARSED_ARGUMENTS})
  set(own ${test_UNPARSED_ARGUMENTS}) # its own parameters
  list(FILTER own INCLUDE REGEX "^${group}\\.")
  brim_command_test(${id}_check check $<TARGET_FILE:brim_${kind}_${id}> ${own})
  brim_command_test(${id}_plugins plugins ${kind}/${id})
  brim_command_test(${id}_plan ${plan} --no-timing ${words})
  brim_command_test(${id}_train ${train} ${words} run.dir=run EXPECT ${test_EXPECT})
endfunction()
