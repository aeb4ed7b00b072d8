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
endfunction()

find_package(Catch2 REQUIRED)
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
  add_test(NAME ${A_NAME} COMMAND ${A_NAME} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  # Exit code 4 is Catch2's "no test ran": a failure, never a pass.
  set_tests_properties(${A_NAME} PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT}
                       SKIP_RETURN_CODE 77 ENVIRONMENT "${A_ENVIRONMENT}")
endfunction()

# Adds every direct subfolder that has a CMakeLists.txt.
function(tandem_add_subdirectories dir)
  file(GLOB _children CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*/CMakeLists.txt)
  foreach(_child ${_children})
    get_filename_component(_d ${_child} DIRECTORY)
    add_subdirectory(${_d})
  endforeach()
endfunction()
