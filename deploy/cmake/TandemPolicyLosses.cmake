# Policy losses are the files of trainer_worker/losses/policy, by their names: dppo_tv.cc defines
# kDppoTvLoss, whose name is dppo_tv. A file that is added there is found by the next build.

# tandem_policy_loss_table(FILE a.cc ...): FILE gets a line TANDEM_POLICY_LOSS(kALoss, "a") for each.
function(tandem_policy_loss_table file)
  set(_table)
  foreach(_source ${ARGN})
    get_filename_component(_name ${_source} NAME_WE)
    set(_symbol k)
    string(REPLACE "_" ";" _words ${_name})
    foreach(_word ${_words})
      string(SUBSTRING ${_word} 0 1 _first)
      string(SUBSTRING ${_word} 1 -1 _rest)
      string(TOUPPER ${_first} _first)
      string(APPEND _symbol ${_first}${_rest})
    endforeach()
    string(APPEND _table "TANDEM_POLICY_LOSS(${_symbol}Loss, \"${_name}\")\n")
  endforeach()
  file(CONFIGURE OUTPUT ${file} CONTENT "${_table}" @ONLY)
endfunction()

file(GLOB TANDEM_POLICY_LOSSES CONFIGURE_DEPENDS
     ${CMAKE_SOURCE_DIR}/trainer_worker/losses/policy/*.cc)
# The folder of policy_losses.inc.
set(TANDEM_POLICY_LOSS_TABLE ${CMAKE_BINARY_DIR}/generated/policy_losses)
tandem_policy_loss_table(${TANDEM_POLICY_LOSS_TABLE}/policy_losses.inc ${TANDEM_POLICY_LOSSES})
