# Builds docs/examples/memory against the brim that abi_install has installed, and runs it: with less memory than it
# prefers, it adapts and gets the same numbers. Needs SOURCE, PREFIX, FOLDER, CC, GENERATOR and SANITIZE.
file(REMOVE_RECURSE ${FOLDER})
set(flags "-Wall -Wextra -Wpedantic -Wshadow -Werror")
if(SANITIZE) # a program with a sanitized library must be sanitized too
  string(APPEND flags " -fsanitize=${SANITIZE}")
endif()

function(run expected)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL expected)
    message(FATAL_ERROR "${ARGN}\nended with ${status}, expected ${expected}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect text)
  string(FIND "${output}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "expected '${text}' in:\n${output}")
  endif()
endfunction()

# The output that must not depend on memory: the loss, and the picture below it.
function(result_of output result)
  if(NOT output MATCHES "trained with [^:]*: (loss [^,]*), at first 0.693")
    message(FATAL_ERROR "no loss in:\n${output}")
  endif()
  set(loss ${CMAKE_MATCH_1})
  if(NOT output MATCHES "\n([.#]+\n[.#\n]+)$")
    message(FATAL_ERROR "no picture in:\n${output}")
  endif()
  set(${result} "${loss}\n${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

run(0 ${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${FOLDER} -DCMAKE_PREFIX_PATH=${PREFIX}
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=${CC} "-DCMAKE_C_FLAGS=${flags}")
run(0 ${CMAKE_COMMAND} --build ${FOLDER})
set(ENV{BRIM_CLAIMS_DIR} ${FOLDER}/claims)
unset(ENV{BRIM_PLUGIN_PATH})
unset(ENV{GPU_DEVICE_ID})

run(0 ${FOLDER}/spirals 4096)
expect("cpu:0 is ")
expect(": the only device that can be used\n")
expect("trained with 1024 x 1: ")
result_of("${output}" roomy)
if(output MATCHES "attempt")
  message(FATAL_ERROR "ran out of memory that it had:\n${output}")
endif()

run(0 ${FOLDER}/spirals)
expect("attempt 1: 1.0 MiB needed, but device 0 has 384.0 KiB left\n")
expect("continuing with micro-batches of 512, 2 per step\nattempt 2: ")
expect("trained with 256 x 4: ")
expect("attempt 1: 480.0 KiB needed, but device 0 has 384.0 KiB left\n")
expect("dropping the cache\n")
result_of("${output}" tight)
if(NOT tight STREQUAL roomy)
  message(FATAL_ERROR "less memory, other numbers:\n${roomy}\nand\n${tight}")
endif()

# the program trains, but has no room for the picture and nothing to free
run(4 ${FOLDER}/spirals 100)
expect("trained with 64 x 16: ")
expect("error: 480.0 KiB needed, but device 0 has 100.0 KiB left\n")

run(4 ${FOLDER}/spirals 8)
expect("error: 16.0 KiB needed, but device 0 has 8.0 KiB left\nno micro-batch fits: \
tried 1024 x 1, 512 x 2, 256 x 4, ")
expect("32 x 32, 16 x 64; min_micro_batch is 16\n")
