# A program generates the manual pages from brim's own tables, into share/man of the build folder.
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  return() # the program cannot run on this host
endif()

add_executable(brim_make_pages docs/man/make_pages.c docs/man/commands.c docs/man/configuration.c)
target_link_libraries(brim_make_pages PRIVATE brim_core)
target_compile_definitions(brim_make_pages PRIVATE BRIM_VERSION="${PROJECT_VERSION}" _GNU_SOURCE)
# The pages list the keys of plugins, so the program loads the plugins, and they use the brim functions that it exports.
set_target_properties(brim_make_pages PROPERTIES ENABLE_EXPORTS ON OUTPUT_NAME make_pages)
brim_options(brim_make_pages)

set(man ${CMAKE_BINARY_DIR}/share/man)
get_property(plugins GLOBAL PROPERTY BRIM_PLUGINS)
# This option is needed because gcc 12's LeakSanitizer misreads thread-local storage of libraries that are loaded at run
# time
add_custom_command(OUTPUT ${man}/man1/brim.1
                   COMMAND ${CMAKE_COMMAND} -E rm -rf ${man}
                   COMMAND ${CMAKE_COMMAND} -E env --unset=BRIM_PLUGIN_PATH --unset=BRIM_FAULT
                           ASAN_OPTIONS=intercept_tls_get_addr=0 ${CMAKE_CROSSCOMPILING_EMULATOR}
                           $<TARGET_FILE:brim_make_pages> ${man}
                   COMMAND ${CMAKE_COMMAND} -E make_directory ${man}/man7
                   COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/docs/man/brim-plugin.7 ${man}/man7
                   DEPENDS brim_make_pages docs/man/brim-plugin.7 ${plugins}
                   COMMENT "Writing manual pages" VERBATIM)
add_custom_target(brim_man ALL DEPENDS ${man}/man1/brim.1)
install(DIRECTORY ${man}/ DESTINATION ${CMAKE_INSTALL_MANDIR})
