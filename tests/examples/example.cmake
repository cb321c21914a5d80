# Builds an example without warnings, and runs its tests. Needs SOURCE, PREFIX, FOLDER, CC, GENERATOR, SANITIZE and
# CTEST.
file(REMOVE_RECURSE ${FOLDER})
set(flags "-Wall -Wextra -Wpedantic -Wshadow -Werror")
if(SANITIZE) # an example must be sanitized like the brim that runs it
  string(APPEND flags " -fsanitize=${SANITIZE}")
endif()
unset(ENV{BRIM_PLUGIN_PATH})
unset(ENV{GPU_DEVICE_ID})
unset(ENV{CLIENT_ID})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nended with ${status}:\n${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${FOLDER} -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_C_COMPILER=${CC}
    "-DCMAKE_C_FLAGS=${flags}")
run(${CMAKE_COMMAND} --build ${FOLDER})
run(${CTEST} --test-dir ${FOLDER} --output-on-failure)
