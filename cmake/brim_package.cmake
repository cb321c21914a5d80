# Debian packages: `cpack -G DEB` in a build folder, or `cmake --workflow --preset package`, writes them to packages/.
#
#     libbrim0            libbrim.so.0, for programs and plugins
#     brim                the program, configurations, completion, manual pages
#     brim-plugins        models, data sets, policies, backends for the host
#     brim-plugins-mpi    the communicator for MPI
#     brim-plugins-cuda   the plugins that need CUDA, if brim was built with it
#     brim-dev            headers, CMake, pkg-config, the templates of `brim new`
#
# Each component of the installation is a package. Paths are those of CMAKE_INSTALL_PREFIX=/usr, which the preset sets.
set(BRIM_MAINTAINER "brim maintainers <maintainers@brim.example>" CACHE STRING "Maintainer of the Debian packages")
find_program(BRIM_DPKG_DEB dpkg-deb)
if(NOT BRIM_DPKG_DEB)
  return()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME brim)
set(CPACK_PACKAGE_VENDOR brim)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own summary
set(CPACK_PACKAGE_CONTACT "${BRIM_MAINTAINER}")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                                                WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(same "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")

# Files that Debian requires in every package, and that other installations do not have.
set(documents ${CMAKE_BINARY_DIR}/package)
configure_file(cmake/debian/copyright.in ${documents}/copyright @ONLY)
string(TIMESTAMP BRIM_DEBIAN_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH if set
configure_file(cmake/debian/changelog.in ${documents}/changelog.Debian @ONLY)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/debian/compress.cmake)

# The description of brim in every package, in lines of Debian's length.
set(about "brim trains neural networks. A training step is a static graph, so its
memory is known before it runs: a run that does not fit fails before it
starts, and a run that has started does not run out of memory.")

# brim_package(COMPONENT PACKAGE SECTION SUMMARY TEXT [FIELD VALUE]...): a value is
# CPACK_DEBIAN_<COMPONENT>_PACKAGE_<FIELD>.
function(brim_package component package section summary text)
  string(TOUPPER ${component} name)
  set(components ${components} ${component} PARENT_SCOPE)
  set(CPACK_DEBIAN_${name}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${name}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${name}_DESCRIPTION "${summary}\n${about}\n\n${text}" PARENT_SCOPE)
  while(ARGN)
    list(POP_FRONT ARGN field value)
    set(CPACK_DEBIAN_${name}_PACKAGE_${field} "${value}" PARENT_SCOPE)
  endwhile()
  install(FILES ${documents}/copyright ${documents}/changelog.Debian DESTINATION share/doc/${package}
          COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

brim_package(library libbrim0 libs "neural networks with memory known before training - library"
             "This is the library that the program, its plugins and other programs use."
             RECOMMENDS "brim-plugins ${same}")
file(CONFIGURE OUTPUT ${documents}/shlibs CONTENT "libbrim 0 libbrim0 (>= @PROJECT_VERSION@)\n" @ONLY)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/cmake/debian/triggers ${documents}/shlibs)
brim_package(program brim science "neural networks with memory known before training"
             "This is the program, with its configurations, completion for shells and\nmanual pages."
             DEPENDS "libbrim0 ${same}, brim-plugins ${same}" SUGGESTS "brim-plugins-mpi, brim-dev")
brim_package(plugins brim-plugins science "neural networks with memory known before training - plugins"
             "These are the models, data sets and memory policies, and the backends for\nCPUs."
             DEPENDS "libbrim0 ${same}" ENHANCES brim)
brim_package(development brim-dev libdevel "neural networks with memory known before training - headers"
             "These are the headers for plugins and for programs that use libbrim, files for\nCMake and pkg-config, \
and the templates of `brim new`."
             DEPENDS "libbrim0 ${same}" RECOMMENDS "brim ${same}" SUGGESTS "cmake, pkg-config")
if(TARGET brim_comm_mpi)
  brim_package(plugins_mpi brim-plugins-mpi science "neural networks with memory known before training - MPI"
               "This is the communicator of several processes, on one machine or more, that\ntrain one model together."
               DEPENDS "libbrim0 ${same}, brim-plugins ${same}" ENHANCES brim)
endif()
if(TARGET brim_backend_cuda OR TARGET brim_comm_nccl)
  # CUDA's libraries are not from Debian, so dpkg cannot determine their packages.
  brim_package(plugins_cuda brim-plugins-cuda contrib/science "neural networks with memory known before training - CUDA"
               "This is the backend for NVIDIA GPUs, and the communicator between several of\nthem. \
It needs CUDA, cuDNN 9 and NCCL, which are not in Debian." DEPENDS "libbrim0 ${same}, brim-plugins ${same}, libc6"
               SHLIBDEPS OFF ENHANCES brim)
endif()
set(CPACK_COMPONENTS_ALL ${components})
include(CPack)
