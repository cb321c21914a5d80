# The folders of core/ are object libraries. Each sees only its own headers and those of the folders below it; other
# includes do not compile. Only this list defines which folder is below which; scripts/folders.sh makes the picture in
# docs/ARCHITECTURE.md from it.

# brim_folder(NAME BELOW...): BELOW are the folders that it depends on; it also sees all folders that these see.
function(brim_folder name)
  set(sees ${name})
  foreach(below IN LISTS ARGN)
    list(APPEND sees ${BRIM_${below}_SEES})
  endforeach()
  list(REMOVE_DUPLICATES sees)
  set(BRIM_${name}_SEES ${sees} PARENT_SCOPE)

  set(headers ${CMAKE_BINARY_DIR}/core/${name})
  file(REMOVE_RECURSE ${headers})
  file(MAKE_DIRECTORY ${headers})
  foreach(folder IN LISTS sees)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/core/${folder} ${headers}/${folder} SYMBOLIC)
  endforeach()

  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/${name}/*.c ${PROJECT_SOURCE_DIR}/core/${name}/*/*.c)
  list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/core/cli/main.c)
  add_library(brim_core_${name} OBJECT ${sources})
  target_include_directories(brim_core_${name} PRIVATE ${headers} ${PROJECT_SOURCE_DIR}/core/include)
  target_link_libraries(brim_core_${name} PRIVATE ${BRIM_CORE_LIBRARIES})
  target_compile_definitions(brim_core_${name} PRIVATE ${BRIM_CORE_DEFINITIONS})
  brim_options(brim_core_${name})
  if(BRIM_SANITIZE) # for brim_internals
    set_target_properties(brim_core_${name} PROPERTIES C_VISIBILITY_PRESET default)
  endif()
  target_sources(brim_core INTERFACE $<TARGET_OBJECTS:brim_core_${name}>)
  set(BRIM_${name}_SOURCES ${sources} PARENT_SCOPE)
endfunction()

# Without this option the compiler does not vectorise square roots, because they may set errno.
set_source_files_properties(${PROJECT_SOURCE_DIR}/core/exec/normal.c PROPERTIES COMPILE_OPTIONS -fno-math-errno)

# A target that links brim_core gets all objects and sees all headers: the library, and tests that replace functions.
set(BRIM_CORE_LIBRARIES PkgConfig::YAML PkgConfig::JANSSON PkgConfig::XXHASH ZLIB::ZLIB Threads::Threads m
    ${CMAKE_DL_LIBS})
set(BRIM_CORE_DEFINITIONS _GNU_SOURCE BRIM_VERSION="${PROJECT_VERSION}"
    BRIM_INSTALL_CMAKE="${CMAKE_INSTALL_LIBDIR}/cmake/brim")
add_library(brim_headers INTERFACE)
target_include_directories(brim_headers INTERFACE ${PROJECT_SOURCE_DIR}/core ${PROJECT_SOURCE_DIR}/core/include)
target_link_libraries(brim_headers INTERFACE ${BRIM_CORE_LIBRARIES})
add_library(brim_core INTERFACE)
target_link_libraries(brim_core INTERFACE brim_headers)

# Other tests of internals link brim_internals. In a build with a sanitizer brim_internals is libbrim, which then
# exports every function. Linking all objects instead would make each of 180 programs 38 MB large and take minutes.
add_library(brim_internals INTERFACE)
if(BRIM_SANITIZE)
  target_link_libraries(brim_internals INTERFACE brim_headers libbrim)
  target_compile_options(brim_internals INTERFACE -fPIC) # needed so that no program has copies of libbrim's variables
else()
  target_link_libraries(brim_internals INTERFACE brim_core)
endif()

# engine: graphs, plans, programs, plugins, ranks; does not depend on configurations
brim_folder(base)
brim_folder(param base)
brim_folder(plugin param)
brim_folder(graph base)
brim_folder(dist plugin)
brim_folder(exec graph dist)
brim_folder(builtin graph dist)
brim_folder(engine exec builtin)
# run: from a configuration to a finished run folder
brim_folder(config graph plugin)
brim_folder(data config builtin)
brim_folder(memory config builtin)
brim_folder(store exec)
brim_folder(observe base)
brim_folder(setup builtin data memory store)
brim_folder(planner setup observe)
brim_folder(decide planner)
brim_folder(drive decide)
brim_folder(federate drive)
brim_folder(train federate observe)
# tool: reading, starting and simulating runs
brim_folder(report store observe)
brim_folder(export setup)
brim_folder(launch memory store)
brim_folder(simulate drive observe)
brim_folder(monitor report memory)
brim_folder(cli train report export launch simulate monitor)

# Numbers in sorting networks are finite; see network.h.
set_source_files_properties(${PROJECT_SOURCE_DIR}/core/base/network.c PROPERTIES COMPILE_OPTIONS
                            "-ffinite-math-only;-fno-signed-zeros")
# Values read from a GGUF must have the same bits as in the reference implementation, which rounds every product and
# every sum. A fused multiply-add would round only once.
set_source_files_properties(${PROJECT_SOURCE_DIR}/core/base/gguf_types.c PROPERTIES COMPILE_OPTIONS
                            "-ffp-contract=off")

# NVTX consists of headers in the CUDA toolkit. A build without them refuses observe.nvtx.
find_path(BRIM_NVTX_INCLUDE nvtx3/nvToolsExt.h HINTS ENV CUDA_PATH PATHS /usr/local/cuda/include)
if(BRIM_NVTX_INCLUDE)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/core/base/tracing.c PROPERTIES COMPILE_DEFINITIONS BRIM_HAS_NVTX
                              INCLUDE_DIRECTORIES ${BRIM_NVTX_INCLUDE})
endif()
