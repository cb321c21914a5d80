# Installs brim into a fresh prefix that is then moved, builds a plugin of another project against it, once through
# find_package and once through pkg-config, and checks from another folder that the installed brim finds both. Needs
# BUILD, SOURCE (of the other project), FOLDER, CC, LIBDIR and GENERATOR.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER}/elsewhere ${FOLDER}/more/model)

include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

# Runs a command that must fail with this exit status and output.
function(run_failing expected pattern)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${FOLDER}/elsewhere RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL ${expected} OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "${ARGN}\nended with ${status}, expected ${expected} and '${pattern}':\n${output}")
  endif()
endfunction()

run(${FOLDER} ${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/first)
file(RENAME ${FOLDER}/first ${FOLDER}/prefix)
set(brim ${FOLDER}/prefix/bin/brim)

# through find_package
run(${FOLDER} ${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${FOLDER}/outside -DCMAKE_PREFIX_PATH=${FOLDER}/prefix
    -DCMAKE_C_COMPILER=${CC} "-DCMAKE_C_FLAGS=-Wall -Wextra -Wpedantic -Werror")
run(${FOLDER} ${CMAKE_COMMAND} --build ${FOLDER}/outside)

# through pkg-config
set(ENV{PKG_CONFIG_PATH} ${FOLDER}/prefix/${LIBDIR}/pkgconfig)
run(${FOLDER} pkg-config --cflags brim)
string(STRIP "${output}" flags)
separate_arguments(flags)
run(${FOLDER} ${CC} -std=c17 ${flags} -DID="by_pkg_config" -DAFTER=brim_softmax -shared -fPIC
    ${SOURCE}/outside.c -o ${FOLDER}/more/model/by_pkg_config.so)

set(paths --plugin-path ../outside --plugin-path=../more)
run(${FOLDER}/elsewhere ${brim} ${paths} plugins)
expect("model/outside +2.5 +one layer, built outside +[^\n]*outside/lib/brim/plugins/model/outside.so\n")
expect("model/by_pkg_config ")
expect("model/cnn [^\n]*/prefix/lib/brim/plugins/model/cnn.so\n")

# a model that ends in a softmax before a loss that includes it gets an error with the place
run(${FOLDER}/elsewhere ${brim} ${paths} plan model=by_pkg_config dataset=synthetic)
expect("warning: the model's output is a softmax \\(outside.c:[0-9]+\\), but loss=cross_entropy expects logits")
run(${FOLDER}/elsewhere ${brim} ${paths} plan model=by_pkg_config dataset=synthetic loss=mse)
if(output MATCHES "warning")
  message(FATAL_ERROR "a softmax before a squared error is nothing to warn of:\n${output}")
endif()

# brim finds the plugin in a folder from the environment, and installed beside its own plugins
set(ENV{BRIM_PLUGIN_PATH} ${FOLDER}/more)
run(${FOLDER}/elsewhere ${brim} plugins model/by_pkg_config --json)
string(JSON value GET "${output}" plugins 0 id)
if(NOT value STREQUAL "by_pkg_config")
  message(FATAL_ERROR "not the plugin that was asked for:\n${output}")
endif()
run(${FOLDER}/elsewhere ${brim} plugins --json)
string(JSON count LENGTH "${output}" plugins)
string(JSON failures LENGTH "${output}" failures)
if(count LESS 10 OR NOT failures EQUAL 0)
  message(FATAL_ERROR "expected all plugins and no failure:\n${output}")
endif()
run(${FOLDER}/elsewhere ${brim} plugins model/cnn)
expect("KEY +TYPE +DEFAULT +RANGE +HELP\n")
run(${FOLDER}/elsewhere ${brim} version --json)
string(JSON value GET "${output}" abi)
if(NOT value STREQUAL "1.13")
  message(FATAL_ERROR "another ABI than expected:\n${output}")
endif()

# an unusable plugin is listed with the reason, and is an error only when chosen
file(WRITE ${FOLDER}/more/model/text.so "no plugin")
run(${FOLDER}/elsewhere ${brim} plugins)
expect("could not be used:\n[^\n]*/more/model/text.so\n +is not a shared object: \
it does not start with an ELF header\n")
run_failing(3 "error: model/text: [^\n]*/more/model/text.so is not a shared object" ${brim} plugins model/text)
run_failing(3 "error: the plugin '../more/model/text.so' is not a shared object" ${brim} --plugin-path
            ../more/model/text.so plugins)
run_failing(2 "error: no plugin 'nobody' of kind 'model'\n +available:[^\n]* cnn" ${brim} plugins model/nobody)
run_failing(2 "error: unknown kind of plugin 'mode'" ${brim} plugins mode)
file(REMOVE ${FOLDER}/more/model/text.so)

run(${FOLDER} ${CMAKE_COMMAND} --install ${FOLDER}/outside --prefix ${FOLDER}/prefix)
run(${FOLDER}/elsewhere ${brim} plugins model/outside)
expect("model/outside: one layer, built outside\n[^\n]*/prefix/lib/brim/plugins/model/outside.so\n")

# the installed configurations are found too
run(${FOLDER}/elsewhere ${brim} config model=outside)
expect("outside")
