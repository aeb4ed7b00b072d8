# Tables of the things that a user adds as one source file: policy losses, advantage estimators,
# reward functions and terms, model families.
#
# tandem_registry(NAME policy_losses TYPE PolicyLoss SUFFIX Loss DIR trainer_worker/losses/policy
#                 [EXTRA a.cc ...] [INTO folder])
# reads the definitions `extern const PolicyLoss kGeoMeanLoss = ...` of every source in DIR and
# writes FOLDER/policy_losses.inc, which has a line
#   TANDEM_REGISTERED(kGeoMeanLoss, "geo_mean")
# for each: the name that users write is the symbol in snake case. A file that includes the table
# defines the macro first. TANDEM_REGISTRY_policy_losses are the sources. A source that is added to
# DIR, and a definition that is added to a source, are found by the next build. EXTRA names sources
# outside of DIR, and INTO another folder for the table: a test adds an entry so.
set(TANDEM_REGISTRY_TABLES ${CMAKE_BINARY_DIR}/generated/registry)

function(tandem_registry)
  cmake_parse_arguments(A "" "NAME;TYPE;SUFFIX;DIR;INTO" "EXTRA" ${ARGN})
  if(NOT A_INTO)
    set(A_INTO ${TANDEM_REGISTRY_TABLES})
  endif()
  file(GLOB _sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${A_DIR}/*.cc)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_sources} ${A_EXTRA})
  set(_table)
  foreach(_source ${_sources} ${A_EXTRA})
    file(STRINGS ${_source} _lines REGEX "^extern const ${A_TYPE} k[A-Za-z0-9]+${A_SUFFIX}( |=|$)")
    foreach(_line ${_lines})
      string(REGEX REPLACE "^extern const ${A_TYPE} (k[A-Za-z0-9]+${A_SUFFIX}).*" "\\1" _symbol "${_line}")
      string(REGEX REPLACE "^k(.*)${A_SUFFIX}$" "\\1" _name ${_symbol})
      string(REGEX REPLACE "([A-Z])" "_\\1" _name ${_name})
      string(TOLOWER ${_name} _name)
      string(SUBSTRING ${_name} 1 -1 _name)
      list(APPEND _table "TANDEM_REGISTERED(${_symbol}, \"${_name}\")\n")
    endforeach()
  endforeach()
  list(JOIN _table "" _table)
  file(CONFIGURE OUTPUT ${A_INTO}/${A_NAME}.inc CONTENT "${_table}" @ONLY)
  set(TANDEM_REGISTRY_${A_NAME} ${_sources} PARENT_SCOPE)
endfunction()

tandem_registry(NAME policy_losses TYPE PolicyLoss SUFFIX Loss DIR trainer_worker/losses/policy)
tandem_registry(NAME advantage_estimators TYPE AdvantageEstimator SUFFIX Estimator
                DIR controller/algorithm/advantages)
tandem_registry(NAME reward_functions TYPE RewardScorer SUFFIX Scorer DIR controller/reward/scorers)
tandem_registry(NAME reward_terms TYPE RewardScorer SUFFIX Term DIR controller/reward/scorers)
tandem_registry(NAME model_families TYPE ModelFamily SUFFIX Family DIR common/model_spec/families)
