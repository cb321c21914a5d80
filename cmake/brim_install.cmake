# What `cmake --install` puts where, and how other projects find it. Plugins install themselves (brim_plugin).
#
# Plugins and configurations lie under the prefix in the same place on every system, whatever CMAKE_INSTALL_LIBDIR is:
# brim looks for them from where libbrim.so is (core/base/install.c).
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/brim)

install(TARGETS brim RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS libbrim brim_sdk EXPORT brim-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY core/include/brim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY configs/ DESTINATION share/brim/configs FILES_MATCHING PATTERN "*.yaml")
install(FILES completions/brim DESTINATION share/bash-completion/completions)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT brim-targets NAMESPACE brim:: DESTINATION ${package})
configure_package_config_file(cmake/brim-config.cmake.in ${CMAKE_BINARY_DIR}/package/brim-config.cmake
                              INSTALL_DESTINATION ${package} PATH_VARS BRIM_PLUGIN_DIR)
# Below 1.0 each minor version may differ in the ABI.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/brim-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/brim-config.cmake ${CMAKE_BINARY_DIR}/package/brim-config-version.cmake
              cmake/brim_plugin.cmake DESTINATION ${package})

file(RELATIVE_PATH BRIM_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/brim.pc.in ${CMAKE_BINARY_DIR}/package/brim.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/brim.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
