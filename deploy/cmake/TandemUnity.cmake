# Sources of a target are compiled together, several to a translation unit: most of what a small
# source costs is parsing headers and instantiating templates, which a unit does once.
#   CMAKE_UNITY_BUILD=OFF   each source on its own, as clang-tidy and the check of includes need it
#   TANDEM_UNITY_BATCH      sources in one unit; fewer where memory is short
#   TANDEM_ALONE            sources, from the root, that are compiled on their own: those that
#                           deploy/scripts/mutations.py changes again and again
# CMake's own unity builds write absolute paths into the units, which makes a compiler cache miss in
# every other folder. These name their sources from the root, so that a clone's units are the same.
if(NOT DEFINED CACHE{CMAKE_UNITY_BUILD})
  set(CMAKE_UNITY_BUILD ON CACHE BOOL "Compile several sources of a target at once")
endif()
set(TANDEM_UNITY_BATCH 10 CACHE STRING "Sources in one unit; 0 or 1: each on its own")
set(TANDEM_ALONE "" CACHE STRING "Sources, from the root, that are compiled on their own")
set(TANDEM_UNITY ${CMAKE_UNITY_BUILD})
if(TANDEM_UNITY_BATCH LESS 2)
  set(TANDEM_UNITY OFF)
endif()
set(CMAKE_UNITY_BUILD OFF)  # hides the cache's value from CMake

# tandem_unity(TARGET): replaces the sources by units once the current folder is read, as options of
# a source may be set after its target. Stays out of units: a source that is generated, that has
# options of its own, or that the property SKIP_UNITY_BUILD_INCLUSION keeps out.
function(tandem_unity target)
  if(TANDEM_UNITY)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL tandem_replace_sources_by_units ${target})")
  endif()
endfunction()

function(tandem_replace_sources_by_units target)
  get_target_property(_sources ${target} SOURCES)
  set(_kept)
  set(_joined)
  foreach(_source ${_sources})
    get_filename_component(_path ${_source} ABSOLUTE)
    get_source_file_property(_options ${_source} COMPILE_OPTIONS)
    get_source_file_property(_skip ${_source} SKIP_UNITY_BUILD_INCLUSION)
    cmake_path(IS_PREFIX CMAKE_BINARY_DIR ${_path} NORMALIZE _generated)
    cmake_path(RELATIVE_PATH _path BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE _from_root)
    if(_from_root IN_LIST TANDEM_ALONE)
      set(_skip ON)
    endif()
    if(_options)
      set_source_files_properties(${_source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
    if(_options OR _skip OR _generated OR NOT _path MATCHES "\\.cc$" OR _path MATCHES "/main\\.cc$")
      list(APPEND _kept ${_source})
    else()
      list(APPEND _joined ${_from_root})
    endif()
  endforeach()
  list(LENGTH _joined _count)
  if(_count LESS 2)
    return()
  endif()
  tandem_write_units(_units ${target} "${_joined}")
  set_property(TARGET ${target} PROPERTY SOURCES ${_kept} ${_units})
endfunction()

# Units of equal numbers of sources, TANDEM_UNITY_BATCH at the most.
function(tandem_write_units out target sources)
  list(LENGTH sources _count)
  math(EXPR _number "(${_count} + ${TANDEM_UNITY_BATCH} - 1) / ${TANDEM_UNITY_BATCH}")
  math(EXPR _size "(${_count} + ${_number} - 1) / ${_number}")
  set(_units)
  set(_begin 0)
  while(_begin LESS _count)
    list(SUBLIST sources ${_begin} ${_size} _batch)
    set(_text)
    foreach(_source ${_batch})
      string(APPEND _text "#include \"${_source}\"\n")
    endforeach()
    list(LENGTH _units _index)
    set(_file ${CMAKE_BINARY_DIR}/unity/${target}/${_index}.cc)
    file(CONFIGURE OUTPUT ${_file} CONTENT "${_text}" @ONLY)
    list(APPEND _units ${_file})
    math(EXPR _begin "${_begin} + ${_size}")
  endwhile()
  set(${out} ${_units} PARENT_SCOPE)
endfunction()
