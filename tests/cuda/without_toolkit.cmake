# Configures brim as on a machine that has no CUDA toolkit: that must work, and leave nothing of CUDA in the build.
# Needs SOURCE, FOLDER, GENERATOR, CC and CXX.
file(REMOVE_RECURSE ${FOLDER})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${FOLDER} -G ${GENERATOR} -DCMAKE_C_COMPILER=${CC}
                        -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0 OR NOT output MATCHES "CUDA toolkit .* not found: backend/cuda is not built")
  message(FATAL_ERROR "configuring ended with ${status}:\n${output}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${FOLDER} --target help OUTPUT_VARIABLE targets)
if(NOT targets MATCHES "brim_backend_reference")
  message(FATAL_ERROR "no list of targets, but:\n${targets}")
elseif(targets MATCHES "(brim_backend_cuda|cuda_emulated|test_cuda_[a-z_]+|nvml_[a-z]+|[^\n/]+\\.cu\\.o)")
  message(FATAL_ERROR "a target of CUDA is there: ${CMAKE_MATCH_0}")
endif()
file(REMOVE_RECURSE ${FOLDER})
