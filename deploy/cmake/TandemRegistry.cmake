# Tables of the things that a user adds as one source file: policy losses, advantage estimators,
# reward functions and terms, model families.
#
# tandem_registry(NAME policy_losses TYPE PolicyLoss SUFFIX Loss DIR trainer_worker/losses/policy
#                 [ALSO Suffix ...] [EXTRA a.cc ...] [INTO folder])
# reads the definitions `extern const PolicyLoss kGeoMeanLoss = ...` of every source in DIR and
# writes FOLDER/policy_losses.inc, which has a line
#   TANDEM_REGISTERED(kGeoMeanLoss, "geo_mean")
# for each: the name that users write is the symbol in snake case. A file that includes the table
# defines the macro first. TANDEM_REGISTRY_policy_losses are the sources. A source that is added to
# DIR, and a definition that is added to a source, are found by the next build. ALSO names suffixes of
# the other tables of DIR. EXTRA names sources outside of DIR, and INTO another folder for the table: a
# test adds an entry so.
#
# Definitions are found by their first line, so that one that is written otherwise would be missing in
# the table, and users would be told that its name is unknown. Whatever looks like one and is not found
# stops the configuration.
set(TANDEM_REGISTRY_TABLES ${CMAKE_BINARY_DIR}/generated/registry)

# The code of a file without comments and the texts of strings. A semicolon becomes a "@", and what else has
# a meaning in CMake's lists a space; the backslash is among that, so that a macro's lines are one.
function(tandem_registry_code source out)
  file(READ ${source} _code)
  string(REPLACE "\\\n" " " _code "\n${_code}\n")
  string(REGEX REPLACE "[][\\\r\t]" " " _code "${_code}")
  string(REPLACE ";" "@" _code "${_code}")
  string(REGEX REPLACE "\"[^\"\n]*\"" "\"\"" _code "${_code}")
  string(REGEX REPLACE "//[^\n]*" "" _code "${_code}")
  string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" " " _code "${_code}")
  set(${out} "${_code}" PARENT_SCOPE)
endfunction()

# Symbols of a type that are defined as the tables need it, by one of the suffixes, "A|B".
function(tandem_registry_symbols code type suffixes out)
  set(_symbols)
  string(REGEX MATCHALL "\nextern const ${type} k[A-Z][A-Za-z0-9]*(${suffixes})[ ={\n]" _lines "${code}")
  foreach(_line ${_lines})
    string(REGEX MATCH "k[A-Z][A-Za-z0-9]*(${suffixes})" _symbol "${_line}")
    list(APPEND _symbols ${_symbol})
  endforeach()
  set(${out} "${_symbols}" PARENT_SCOPE)
endfunction()

# Stops where the code of a file has what looks like a definition and is none of `symbols`.
function(tandem_check_registry source code table type suffixes symbols)
  string(REGEX REPLACE "[ \n]+" " " _code " ${code}")
  set(_name "k[A-Za-z0-9_]+(${suffixes})")
  set(_looks
    "[^A-Za-z0-9_]extern [^@={]*[ :]${type} (const )?[A-Za-z_#][^@={(]*[={]"  # whatever its name, in a macro too
    "[^A-Za-z0-9_]${type} (const )?k ?[A-Z0-9_#][A-Za-z0-9_# ]*[={(]"         # without extern
    "[^A-Za-z0-9_]extern [^@={(]*[ :]${_name} ?[={(]"                         # of another name of the type
    "[^A-Za-z0-9_]auto ${_name} ?[={]"
    ", ?${_name} ?({|=[^=])")                                                 # the second of a statement
  foreach(_look ${_looks})
    string(REGEX MATCHALL "${_look}" _found "${_code}")
    foreach(_text ${_found})
      string(REGEX REPLACE " ?[={(].?$" "" _text "${_text}")
      string(REGEX MATCH "[A-Za-z0-9_]*$" _symbol "${_text}")
      if(NOT _symbol IN_LIST symbols)
        string(SUBSTRING "${_text}" 1 120 _text)
        tandem_registry_misses(${source} "has \"${_text}\", which looks like a definition and would be missed"
                               ${table} ${type} "${suffixes}")
      endif()
    endforeach()
  endforeach()
endfunction()

function(tandem_registry_misses source why table type suffixes)
  string(REPLACE "|" " or kName" suffixes "${suffixes}")
  message(FATAL_ERROR "${source} ${why}. The table ${table} has what is found by a line that begins with "
          "\"extern const ${type} kName${suffixes} =\", Name being letters and digits and the first a capital. "
          "Write it so in a file of the kind .cc, one definition to a statement and not by a macro; code that defines none "
          "belongs into another folder (deploy/cmake/TandemRegistry.cmake).")
endfunction()

function(tandem_registry)
  cmake_parse_arguments(A "" "NAME;TYPE;SUFFIX;DIR;INTO" "ALSO;EXTRA" ${ARGN})
  if(NOT A_INTO)
    set(A_INTO ${TANDEM_REGISTRY_TABLES})
  endif()
  list(JOIN A_ALSO "|" _suffixes)
  string(REGEX REPLACE "[|]$" "" _suffixes "${A_SUFFIX}|${_suffixes}")
  file(GLOB _sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${A_DIR}/*.cc)
  file(GLOB_RECURSE _others CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${A_DIR}/*.h ${CMAKE_SOURCE_DIR}/${A_DIR}/*.c*)
  list(REMOVE_ITEM _others ${_sources} "")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_sources} ${A_EXTRA} ${_others})
  foreach(_other ${_others})
    tandem_registry_code(${_other} _code)
    tandem_check_registry(${_other} "${_code}" ${A_NAME} ${A_TYPE} "${_suffixes}" "")
  endforeach()
  set(_table)
  foreach(_source ${_sources} ${A_EXTRA})
    tandem_registry_code(${_source} _code)
    tandem_registry_symbols("${_code}" ${A_TYPE} "${_suffixes}" _symbols)
    tandem_check_registry(${_source} "${_code}" ${A_NAME} ${A_TYPE} "${_suffixes}" "${_symbols}")
    if(NOT _symbols)
      tandem_registry_misses(${_source} "defines nothing" ${A_NAME} ${A_TYPE} "${_suffixes}")
    endif()
    foreach(_symbol ${_symbols})
      if(_symbol MATCHES "^k(.*)${A_SUFFIX}$")
        string(REGEX REPLACE "([A-Z])" "_\\1" _name ${CMAKE_MATCH_1})
        string(TOLOWER ${_name} _name)
        string(SUBSTRING ${_name} 1 -1 _name)
        list(APPEND _table "TANDEM_REGISTERED(${_symbol}, \"${_name}\")\n")
      endif()
    endforeach()
  endforeach()
  list(JOIN _table "" _table)
  file(CONFIGURE OUTPUT ${A_INTO}/${A_NAME}.inc CONTENT "${_table}" @ONLY)
  set(TANDEM_REGISTRY_${A_NAME} ${_sources} PARENT_SCOPE)
endfunction()

tandem_registry(NAME policy_losses TYPE PolicyLoss SUFFIX Loss DIR trainer_worker/losses/policy)
tandem_registry(NAME advantage_estimators TYPE AdvantageEstimator SUFFIX Estimator
                DIR controller/algorithm/advantages)
tandem_registry(NAME reward_functions TYPE RewardScorer SUFFIX Scorer ALSO Term
                DIR controller/reward/scorers)
tandem_registry(NAME reward_terms TYPE RewardScorer SUFFIX Term ALSO Scorer
                DIR controller/reward/scorers)
tandem_registry(NAME model_families TYPE ModelFamily SUFFIX Family DIR common/model_spec/families)
