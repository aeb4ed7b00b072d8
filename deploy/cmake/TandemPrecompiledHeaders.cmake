# Headers of other projects that nearly every source includes, parsed once for libraries and once
# for tests, which are compiled for another place (programs, not libraries). For ccache a digest of the headers stands for each.
# CMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without.
set(_common <algorithm> <chrono> <cstdint> <filesystem> <functional> <map> <memory> <mutex> <optional>
    <string> <string_view> <utility> <vector> <absl/status/status.h> <absl/status/statusor.h>
    <absl/strings/str_cat.h> <absl/time/time.h> <fmt/format.h>)

# tandem_precompiled(NAME x [PROGRAM] HEADERS ... DEPS ...): a target whose headers others reuse.
function(tandem_precompiled)
  cmake_parse_arguments(A "PROGRAM" "NAME" "HEADERS;DEPS" ${ARGN})
  set(_source ${CMAKE_BINARY_DIR}/precompiled/${A_NAME}.cc)
  file(CONFIGURE OUTPUT ${_source} CONTENT "int main() { return 0; }\n")
  if(A_PROGRAM)
    add_executable(${A_NAME} ${_source})
  else()
    add_library(${A_NAME} STATIC ${_source})
  endif()
  target_link_libraries(${A_NAME} PRIVATE ${A_DEPS})
  target_precompile_headers(${A_NAME} PRIVATE ${A_HEADERS})
  target_compile_options(${A_NAME} PRIVATE -fpch-preprocess)  # for ccache
  set_target_properties(${A_NAME} PROPERTIES CXX_COMPILER_LAUNCHER
    "${CMAKE_SOURCE_DIR}/deploy/scripts/compile_header.sh;${CMAKE_CXX_COMPILER_LAUNCHER}")
endfunction()

# tandem_use_precompiled(TARGET x): its C++ sources see the headers of x first. CUDA has no such thing.
function(tandem_use_precompiled target from)
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${from})
    target_link_libraries(${target} PRIVATE fmt::fmt)  # the same macros as where they were compiled
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
  endif()
endfunction()

tandem_precompiled(NAME tandem_library_headers HEADERS ${_common} DEPS fmt::fmt)
tandem_precompiled(NAME tandem_test_headers PROGRAM HEADERS ${_common} <fstream> <iostream> <thread>
                   <catch2/catch.hpp> DEPS fmt::fmt Catch2::Catch2)

# Sources of test programs, whose assertions take g++ nearly twice as long at -O2, and run no faster there than
# what they test allows.
function(tandem_compile_as_test target)
  # GCC 12 takes memory of std::string and of torch's optional tensors for uninitialized or too short
  # where it inlines as little as -O1 does.
  target_compile_options(${target} PRIVATE
    "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1;-Wno-array-bounds;-Wno-maybe-uninitialized>")
endfunction()
tandem_compile_as_test(tandem_test_headers)
