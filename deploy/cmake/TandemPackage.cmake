# package_programs: what deploy/package.sh packs, in ${CMAKE_BINARY_DIR}/package/bin. The objects of
# the build's own programs, linked once more without anything of this machine: stripped, no folders
# in the run path but relative ones, and no build id, which is made of debug information.

# First a package's own libraries, then those of the Python packages beside a wheel's. DT_RPATH
# (tandem_run_anywhere) holds for the libraries that these need as well. deploy/package/elf.py
# shortens it to what a package has.
set(TANDEM_PACKAGE_RPATH "$ORIGIN/../lib:$ORIGIN/../../torch/lib:$ORIGIN/../../nvidia/cu13/lib")

add_custom_target(package_programs)
foreach(_program tandem-controller tandem-trainer tandem-rollout tandem-launcher tandem-agent tandem-parity tandemctl)
  set(_packaged ${_program}-packaged)
  add_executable(${_packaged} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${_program}>)
  get_target_property(_libraries ${_program} LINK_LIBRARIES)
  target_link_libraries(${_packaged} PRIVATE ${_libraries})
  target_link_options(${_packaged} PRIVATE
    LINKER:--disable-new-dtags LINKER:--strip-all LINKER:--build-id=none)
  tandem_harden_link(${_packaged})
  set_target_properties(${_packaged} PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME ${_program}
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/package/bin
    TANDEM_PACKAGED ON BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${TANDEM_PACKAGE_RPATH}")
  add_dependencies(package_programs ${_packaged})
endforeach()
# Where LibTorch and the CUDA runtime lie, for what collects them.
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/package/torch_folders.txt
     CONTENT "${TANDEM_TORCH_ROOT}/lib\n${TANDEM_CUDA_RUNTIME}\n")
