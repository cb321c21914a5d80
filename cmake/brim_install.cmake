# Rules of `cmake --install`, and the package by which other projects find brim. brim_plugin installs plugins.
#
# Plugins and configurations have the same place under the prefix on every system, whatever CMAKE_INSTALL_LIBDIR is:
# brim searches them relative to libbrim.so (core/base/install.c).
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/brim)

install(TARGETS brim RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS libbrim brim_sdk EXPORT brim-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
                                                             NAMELINK_COMPONENT development)
install(DIRECTORY core/include/brim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h")
install(DIRECTORY configs/ DESTINATION share/brim/configs FILES_MATCHING PATTERN "*.yaml")
install(DIRECTORY templates/ DESTINATION share/brim/templates COMPONENT development)
install(FILES completions/brim DESTINATION share/bash-completion/completions)
install(FILES completions/_brim DESTINATION share/zsh/site-functions)
install(FILES completions/brim.fish DESTINATION share/fish/vendor_completions.d)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT license) # not in Debian packages

# In /usr the loader finds the library without a RPATH, and distributions do not allow one.
install(CODE "
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}/usr/${CMAKE_INSTALL_BINDIR}/brim\")
  endif()")

# The build folder contains the package too, so that plugins can be built against a brim that is not installed. Only
# brim-targets.cmake differs.
set(files ${CMAKE_BINARY_DIR}/${package})
set(BRIM_EXECUTABLE ${CMAKE_INSTALL_BINDIR}/brim)
install(EXPORT brim-targets NAMESPACE brim:: DESTINATION ${package} COMPONENT development)
export(EXPORT brim-targets NAMESPACE brim:: FILE ${files}/brim-targets.cmake)
configure_package_config_file(cmake/brim-config.cmake.in ${files}/brim-config.cmake INSTALL_DESTINATION ${package}
                              PATH_VARS BRIM_PLUGIN_DIR BRIM_EXECUTABLE)
# Below 1.0 each minor version may change the ABI.
write_basic_package_version_file(${files}/brim-config-version.cmake COMPATIBILITY SameMajorVersion)
configure_file(cmake/brim_plugin.cmake ${files}/brim_plugin.cmake COPYONLY)
configure_file(cmake/brim_command_test.cmake ${files}/brim_command_test.cmake COPYONLY)
install(FILES ${files}/brim-config.cmake ${files}/brim-config-version.cmake cmake/brim_plugin.cmake
              cmake/brim_command_test.cmake DESTINATION ${package} COMPONENT development)

file(RELATIVE_PATH BRIM_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/brim.pc.in ${CMAKE_BINARY_DIR}/package/brim.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/brim.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
