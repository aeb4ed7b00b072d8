# tandem::build_info: ThisBuild() of common/base/build_info.h, in a source of its own that every
# build writes anew where version, commit, sources or flags have changed. For programs alone; a
# macro on other sources' command lines would empty the compiler cache with every commit.

# Flags that results can depend on: neither warnings nor debug information nor folders.
set(_flags "${CMAKE_CXX_FLAGS}")
if(CMAKE_BUILD_TYPE)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" _type)
  string(APPEND _flags " ${CMAKE_CXX_FLAGS_${_type}}")
endif()
string(REGEX REPLACE "(^| )(-g[a-z0-9]*|-W[^ ]*|-f[a-z]*-prefix-map=[^ ]*|-fdebug[^ ]*|-fdiagnostics[^ ]*)" " "
       _flags "${_flags}")
string(REGEX REPLACE " +" " " _flags "${_flags}")
string(STRIP "${_flags}" _flags)

file(STRINGS ${TANDEM_TORCH_ROOT}/version.py _torch REGEX "^__version__")
string(REGEX REPLACE "^__version__ = '(.*)'$" "\\1" _torch "${_torch}")
set(_what "${CMAKE_BUILD_TYPE}" "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    "${_flags}" "LibTorch ${_torch}")
if(TANDEM_SANITIZE)
  string(REPLACE "," "+" _sanitizers "${TANDEM_SANITIZE}")
  list(APPEND _what "sanitizer ${_sanitizers}")
endif()
list(REMOVE_ITEM _what "")
list(JOIN _what ", " _what)
set(_cuda off)
if(TANDEM_HAS_CUDA)
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " _cuda)
endif()

set(_file ${CMAKE_BINARY_DIR}/generated/build_info/this_build.cc)
set(_write ${CMAKE_COMMAND} "-DSOURCE=${CMAKE_SOURCE_DIR}" "-DVERSION=${PROJECT_VERSION}"
    "-DFLAGS=${_what}" "-DCUDA=${_cuda}" "-DOUTPUT=${_file}"
    -P ${CMAKE_SOURCE_DIR}/deploy/cmake/write_build_info.cmake)
execute_process(COMMAND ${_write} COMMAND_ERROR_IS_FATAL ANY)
# In every build: commits and changed files are not inputs that the build could name.
add_custom_target(tandem_this_build COMMAND ${_write} BYPRODUCTS ${_file} VERBATIM
                  COMMENT "looking which build this is")
tandem_library(NAME tandem_build_info SRCS ${_file})
add_dependencies(tandem_build_info tandem_this_build)
