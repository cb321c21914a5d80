# What `brim new` of the brim that abi_install has installed makes, of each kind: the commands that it prints are run as
# they stand, from building to training, and then the plugin and its configuration are used from a build folder, by the
# environment, and where they were installed. Needs PREFIX, FOLDER, CC and GENERATOR.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
set(ENV{CC} ${CC})
set(ENV{CMAKE_GENERATOR} ${GENERATOR}) # users have the generator of their system
set(ENV{CFLAGS} "-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Werror")
set(ENV{BRIM_CLAIMS_DIR} ${FOLDER}/claims)
unset(ENV{BRIM_PLUGIN_PATH})
unset(ENV{CMAKE_PREFIX_PATH})
set(brim ${PREFIX}/bin/brim)

include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

# Is the text, which is no pattern, somewhere in the commands of the last plugin?
function(steps_have text result)
  string(FIND "${steps}" "${text}" at)
  if(at EQUAL -1)
    set(${result} FALSE PARENT_SCOPE)
  else()
    set(${result} TRUE PARENT_SCOPE)
  endif()
endfunction()

# Makes a plugin and does what is printed then.
function(make kind name)
  run(${FOLDER} ${brim} new ${kind} ${name})
  string(FIND "${output}" "\n  cd ${name}\n" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "no commands in:\n${output}")
  endif()
  string(SUBSTRING "${output}" ${at} -1 steps)
  file(WRITE ${FOLDER}/${name}.sh "${steps}")
  run(${FOLDER} sh -e ${FOLDER}/${name}.sh)
  expect("100% tests passed, 0 tests failed out of [56]\n")
  expect("done in ")
  set(output "${output}" PARENT_SCOPE)
  set(steps "${steps}" PARENT_SCOPE)
endfunction()

make(policy polite)
expect("policy.polite: micro-batch ")
steps_have("CMAKE_PREFIX_PATH=${PREFIX}\n" prefix)
steps_have("\n  ${brim} train " program)
if(NOT prefix OR NOT program)
  message(FATAL_ERROR "not told where brim is:\n${steps}")
endif()

# with brim on the PATH nothing need be said about where it is
set(ENV{PATH} "${PREFIX}/bin:$ENV{PATH}")
make(model net)
make(dataset points)
steps_have("${PREFIX}" prefix)
steps_have("\n  brim train " program)
if(prefix OR NOT program)
  message(FATAL_ERROR "told where brim is, which is on the PATH:\n${steps}")
endif()

# three projects together; their configurations are options, and an edited one counts at once
file(WRITE ${FOLDER}/net/configs/model/net.yaml "id: net\nwidth: 3\n")
run(${FOLDER}/net brim --plugin-path build config model=net)
expect("width: 3\n")
set(together model=net policy=polite policy.polite.share=0.001 dataset=synthetic dataset.shape=[1,8,8])
run(${FOLDER} brim --plugin-path net/build --plugin-path=polite/build/ train ${together} training.steps=2 run.dir=a)
expect("policy.polite: micro-batch [0-9]+ x [0-9]+: .* where its share of ")
expect("net on synthetic")
set(ENV{BRIM_PLUGIN_PATH} ${FOLDER}/points/build:${FOLDER}/polite/build)
run(${FOLDER} brim train dataset=points model=mlp policy=polite training.steps=2 run.dir=b)
expect("mlp on points")
run(${FOLDER} brim plugins dataset/points)
expect("points/build/lib/brim/plugins/dataset/points.so\n")
unset(ENV{BRIM_PLUGIN_PATH})

# installed, into a prefix of its own, as that of brim is other tests' too
run(${FOLDER} ${CMAKE_COMMAND} --install net/build --prefix ${FOLDER}/own)
if(NOT EXISTS ${FOLDER}/own/lib/brim/plugins/model/net.so OR NOT EXISTS ${FOLDER}/own/share/brim/configs/model/net.yaml)
  message(FATAL_ERROR "not installed:\n${output}")
endif()
run(${FOLDER} brim --plugin-path own config model=net)
expect("width: 3\n")
