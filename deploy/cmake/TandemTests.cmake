# tandem_test(NAME x_test [PROGRAM test_y] SRCS ... DEPS ... [AFTER target ...] [LABELS ...]
#             [ENVIRONMENT ...] [TIMEOUT seconds])
# A CTest entry. With PROGRAM its sources are compiled and linked together with those of the other
# entries of that program, and the entry runs the tests of its own sources (Catch2 takes a file's
# name as a tag). Without, it has a program of its own, of its name: for tests that replace something
# of the whole process. AFTER: built before, as the test starts it.
# tandem_test_again(NAME x_again TEST x ENVIRONMENT ...): the tests of entry x once more, in that
# environment.
# Every program is started with Catch2's --warn NoTests: one in which no test runs fails, and
# deploy/scripts/test_verdict.py tells a program of Catch2 by it.
# tandem_unit_tests(out FOLDER [WITHOUT x_test.cc ...]): the sources *_test.cc of FOLDER, a path from
# the caller's folder, but for *_golden_test.cc and the named ones. For folders to which users add a
# test with each loss, estimator, reward or family: a new file needs no line of CMake.
# tandem_finish_tests(): makes the programs; after all tests are declared.
find_package(Catch2 REQUIRED)

function(tandem_test)
  cmake_parse_arguments(A "" "NAME;TIMEOUT;PROGRAM" "SRCS;DEPS;AFTER;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT A_LABELS)
    set(A_LABELS unit)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  if(TANDEM_SANITIZE)
    math(EXPR A_TIMEOUT "3 * ${A_TIMEOUT}")  # instrumented code takes that much longer
  endif()
  if(A_PROGRAM)
    tandem_join_test_program(${A_PROGRAM} "${A_SRCS}" "${A_DEPS}" "${A_AFTER}")
    tandem_tests_in_files(_arguments ${A_SRCS})
    set_property(GLOBAL PROPERTY TANDEM_COMMAND_${A_NAME} ${A_PROGRAM} ${_arguments})
  else()
    tandem_make_test_program(${A_NAME} "${A_SRCS}" "${A_DEPS}" "${A_AFTER}")
    set_property(GLOBAL PROPERTY TANDEM_COMMAND_${A_NAME} ${A_NAME} --warn NoTests)
  endif()
  tandem_add_test(${A_NAME} "${A_LABELS}" ${A_TIMEOUT} "${A_ENVIRONMENT}")
endfunction()

function(tandem_test_again)
  cmake_parse_arguments(A "" "NAME;TEST" "ENVIRONMENT" ${ARGN})
  get_property(_command GLOBAL PROPERTY TANDEM_COMMAND_${A_TEST})
  get_property(_same GLOBAL PROPERTY TANDEM_TEST_${A_TEST})
  list(POP_FRONT _same _timeout)
  set_property(GLOBAL PROPERTY TANDEM_COMMAND_${A_NAME} ${_command})
  tandem_add_test(${A_NAME} "${_same}" ${_timeout} "${A_ENVIRONMENT}")
endfunction()

function(tandem_unit_tests out folder)
  cmake_parse_arguments(A "" "" "WITHOUT" ${ARGN})
  file(GLOB _sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}
       ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_test.cc)
  list(FILTER _sources EXCLUDE REGEX "_golden_test[.]cc$")
  list(REMOVE_ITEM _sources ${A_WITHOUT} "")
  set(${out} ${_sources} PARENT_SCOPE)
endfunction()

# In the caller's folder, so that it can set more properties.
macro(tandem_add_test name labels timeout environment)
  get_property(_run GLOBAL PROPERTY TANDEM_COMMAND_${name})
  add_test(NAME ${name} COMMAND ${_run} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77
                       ENVIRONMENT "${environment}")
  set_property(GLOBAL PROPERTY TANDEM_TEST_${name} ${timeout} ${labels})
endmacro()

# Catch2's arguments for the tests of these files; a file that has none of the name x_test holds none.
function(tandem_tests_in_files out)
  set(_tags)
  foreach(_path ${ARGN})
    get_filename_component(_stem ${_path} NAME_WE)
    if(_stem MATCHES "_test$")
      list(APPEND _tags "[#${_stem}]")
    endif()
  endforeach()
  list(JOIN _tags "," _filter)
  set(${out} --filenames-as-tags --warn NoTests "${_filter}" PARENT_SCOPE)
endfunction()

function(tandem_join_test_program program sources libraries after)
  set(_paths)
  foreach(_source ${sources})
    get_filename_component(_path ${_source} ABSOLUTE)
    list(APPEND _paths ${_path})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY TANDEM_TEST_PROGRAMS ${program})
  set_property(GLOBAL APPEND PROPERTY TANDEM_SOURCES_${program} ${_paths})
  set_property(GLOBAL APPEND PROPERTY TANDEM_LIBRARIES_${program} ${libraries})
  set_property(GLOBAL APPEND PROPERTY TANDEM_AFTER_${program} ${after})
endfunction()

function(tandem_finish_tests)
  get_property(_programs GLOBAL PROPERTY TANDEM_TEST_PROGRAMS)
  list(REMOVE_DUPLICATES _programs)
  foreach(_program ${_programs})
    foreach(_part SOURCES LIBRARIES AFTER)
      get_property(_${_part} GLOBAL PROPERTY TANDEM_${_part}_${_program})
      list(REMOVE_DUPLICATES _${_part})
    endforeach()
    tandem_check_file_names(${_program} ${_SOURCES})
    tandem_make_test_program(${_program} "${_SOURCES}" "${_LIBRARIES}" "${_AFTER}")
  endforeach()
endfunction()

function(tandem_check_file_names program)
  set(_stems)
  foreach(_source ${ARGN})
    get_filename_component(_stem ${_source} NAME_WE)
    if(_stem MATCHES "_test$" AND _stem IN_LIST _stems)
      message(FATAL_ERROR "${program} has two sources ${_stem}.cc; its entries tell tests apart by "
                          "their file's name, so rename one: ${_source}")
    endif()
    list(APPEND _stems ${_stem})
  endforeach()
endfunction()

function(tandem_make_test_program name sources libraries after)
  add_executable(${name} ${sources})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${libraries} Catch2::Catch2WithMain)
  if(TARGET tandem_leaks_of_libraries)
    target_link_libraries(${name} PRIVATE tandem_leaks_of_libraries)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(after)
    add_dependencies(${name} ${after})
  endif()
  tandem_compile_as_test(${name})
  tandem_use_precompiled(${name} tandem_test_headers)
  tandem_unity(${name})
endfunction()
