# tandem_library(NAME tandem_x SRCS ... DEPS ...)        a static library, alias tandem::x
# tandem_executable(NAME tandem-x SRCS ... DEPS ...)     a program, placed in ${CMAKE_BINARY_DIR}/bin
# tandem_test(NAME x_test SRCS ... DEPS ... LABELS ...)  a Catch2 binary registered with CTest
# Includes are written from the repository root.
function(tandem_library)
  cmake_parse_arguments(A "" "NAME" "SRCS;DEPS" ${ARGN})
  add_library(${A_NAME} STATIC ${A_SRCS})
  string(REPLACE "tandem_" "tandem::" _alias ${A_NAME})
  add_library(${_alias} ALIAS ${A_NAME})
  target_include_directories(${A_NAME} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${A_NAME} PUBLIC ${A_DEPS})
endfunction()

function(tandem_executable)
  cmake_parse_arguments(A "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${A_NAME} ${A_SRCS})
  target_include_directories(${A_NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${A_NAME} PRIVATE ${A_DEPS})
  set_target_properties(${A_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  tandem_run_anywhere(${A_NAME})
endfunction()

# In a folder that is copied elsewhere the libraries lie beside a program's own; DT_RPATH holds for
# the libraries of theirs as well.
function(tandem_run_anywhere target)
  set_target_properties(${target} PROPERTIES BUILD_RPATH "\$ORIGIN/../lib")
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endfunction()

find_package(Catch2 REQUIRED)
# What nearly every test includes, compiled once: a tenth of a build from nothing. Without it tests
# of several checkouts share a compiler cache.
option(TANDEM_PRECOMPILED_TESTS "Precompile the headers that tests share" ON)
# Under ThreadSanitizer gRPC is the shared one, whose -pthread not all programs have.
if(TANDEM_PRECOMPILED_TESTS AND NOT TANDEM_SANITIZE MATCHES "thread")
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/tests/precompiled.cc CONTENT "// Only its headers.\n")
  # A program, as those that use them: compiled for the same place.
  add_executable(tandem_test_headers ${CMAKE_BINARY_DIR}/tests/precompiled.cc)
  target_link_libraries(tandem_test_headers PRIVATE Catch2::Catch2WithMain)
  target_compile_options(tandem_test_headers PRIVATE -fpch-preprocess)  # for ccache
  target_precompile_headers(tandem_test_headers PRIVATE
    <algorithm> <filesystem> <fstream> <functional> <map> <memory> <string> <thread> <vector>
    <absl/status/status.h> <absl/status/statusor.h> <absl/time/time.h> <catch2/catch.hpp>)
endif()
function(tandem_test)
  cmake_parse_arguments(A "" "NAME;TIMEOUT" "SRCS;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT A_LABELS)
    set(A_LABELS unit)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  add_executable(${A_NAME} ${A_SRCS})
  target_include_directories(${A_NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${A_NAME} PRIVATE ${A_DEPS} Catch2::Catch2WithMain)
  set_target_properties(${A_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(TARGET tandem_test_headers)
    target_precompile_headers(${A_NAME} REUSE_FROM tandem_test_headers)
    target_compile_options(${A_NAME} PRIVATE -fpch-preprocess)
  endif()
  add_test(NAME ${A_NAME} COMMAND ${A_NAME} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  # Exit code 4 is Catch2's "no test ran": a failure, never a pass.
  set_tests_properties(${A_NAME} PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT}
                       SKIP_RETURN_CODE 77 ENVIRONMENT "${A_ENVIRONMENT}")
endfunction()

# tandem_test_again(NAME x_again TEST x ENVIRONMENT ...): test x once more, in that environment.
function(tandem_test_again)
  cmake_parse_arguments(A "" "NAME;TEST" "ENVIRONMENT" ${ARGN})
  add_test(NAME ${A_NAME} COMMAND ${A_TEST} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  get_test_property(${A_TEST} LABELS _labels)
  get_test_property(${A_TEST} TIMEOUT _timeout)
  set_tests_properties(${A_NAME} PROPERTIES LABELS "${_labels}" TIMEOUT ${_timeout}
                       ENVIRONMENT "${A_ENVIRONMENT}")
endfunction()

# Adds every direct subfolder that has a CMakeLists.txt.
function(tandem_add_subdirectories dir)
  file(GLOB _children CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*/CMakeLists.txt)
  foreach(_child ${_children})
    get_filename_component(_d ${_child} DIRECTORY)
    add_subdirectory(${_d})
  endforeach()
endfunction()

# tandem_worker(NAME tandem-x SRCS main.cc DEPS ...)
# A program that computes: tandem-x, and one for tests whose GPUs are emulated, of the same name in
# ${CMAKE_BINARY_DIR}/emulated.
function(tandem_worker)
  cmake_parse_arguments(A "" "NAME" "SRCS;DEPS" ${ARGN})
  tandem_executable(NAME ${A_NAME} SRCS ${A_SRCS} DEPS ${A_DEPS} tandem::backend)
  tandem_executable(NAME ${A_NAME}-emulated SRCS ${A_SRCS} DEPS ${A_DEPS} tandem::emulated_backend)
  set_target_properties(${A_NAME}-emulated PROPERTIES OUTPUT_NAME ${A_NAME}
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/emulated)
endfunction()

# tandem_cuda_kernels(NAME tandem_x_kernels KERNELS a.cu ... DEPS ...)
# tandem::x_kernels: the kernels as nvcc compiles them, only with TANDEM_HAS_CUDA.
# tandem::x_kernels_emulated: the same files as C++ for the emulator (common/device/cuda/emulator),
# for tests.
function(tandem_cuda_kernels)
  cmake_parse_arguments(A "" "NAME" "KERNELS;DEPS" ${ARGN})
  if(TANDEM_HAS_CUDA)
    tandem_library(NAME ${A_NAME} SRCS ${A_KERNELS} DEPS ${A_DEPS})
  endif()
  set(_emulated)
  foreach(_kernel ${A_KERNELS})
    set(_file ${CMAKE_CURRENT_BINARY_DIR}/${_kernel}.emulated.cc)
    file(GENERATE OUTPUT ${_file}
         CONTENT "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${_kernel}\"\n")
    list(APPEND _emulated ${_file})
  endforeach()
  tandem_library(NAME ${A_NAME}_emulated SRCS ${_emulated}
                 DEPS tandem::cuda_emulator ${A_DEPS})
endfunction()
