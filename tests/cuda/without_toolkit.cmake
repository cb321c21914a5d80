# Configures brim as on machines without a CUDA toolkit and without cmocka: that must work, and leave out everything
# that needs them. Needs SOURCE, FOLDER, GENERATOR, CC and CXX.

# configure(EXPECTED COMMAND...): cmake's output must match; sets `targets` to the list of targets.
function(configure expected)
  file(REMOVE_RECURSE ${FOLDER})
  execute_process(COMMAND ${ARGN} ${CMAKE_COMMAND} -S ${SOURCE} -B ${FOLDER} -G ${GENERATOR} -DCMAKE_C_COMPILER=${CC}
                          -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0 OR NOT output MATCHES "${expected}")
    message(FATAL_ERROR "configuring ended with ${status}, or without '${expected}':\n${output}")
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${FOLDER} --target help OUTPUT_VARIABLE targets)
  if(NOT targets MATCHES "brim_backend_reference")
    message(FATAL_ERROR "no list of targets, but:\n${targets}")
  endif()
  set(targets "${targets}" PARENT_SCOPE)
  file(REMOVE_RECURSE ${FOLDER})
endfunction()

configure("CUDA toolkit .* not found: backend/cuda is not built")
if(targets MATCHES "(brim_backend_cuda|cuda_emulated|test_cuda_[a-z_]+|nvml_[a-z]+|[^\n/]+\\.cu\\.o)")
  message(FATAL_ERROR "a target of CUDA is there: ${CMAKE_MATCH_0}")
endif()

# pkg-config's files of all packages except cmocka
find_program(PKG_CONFIG pkg-config REQUIRED)
execute_process(COMMAND ${PKG_CONFIG} --variable pc_path pkg-config OUTPUT_VARIABLE folders
                OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE ":" ";" folders "${folders}")
set(packages ${FOLDER}.packages)
file(REMOVE_RECURSE ${packages})
file(MAKE_DIRECTORY ${packages})
foreach(folder IN LISTS folders)
  file(GLOB files ${folder}/*.pc)
  list(FILTER files EXCLUDE REGEX "/cmocka\\.pc$")
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    file(CREATE_LINK ${file} ${packages}/${name} SYMBOLIC)
  endforeach()
endforeach()
configure("Tests are left out, because cmocka is missing: scripts/setup.sh test"
          ${CMAKE_COMMAND} -E env PKG_CONFIG_LIBDIR=${packages})
file(REMOVE_RECURSE ${packages})
if(targets MATCHES "test_[a-z_]+")
  message(FATAL_ERROR "a test is there: ${CMAKE_MATCH_0}")
endif()
