# LibTorch from the torch wheel, as our own imported target tandem::torch_cpu.
# The wheel's TorchConfig.cmake is not used: it fails without CUDA and drags NVRTC in.
# TANDEM_TORCH_ROOT = .../site-packages/torch; the default is where deploy/setup.sh installs it.
if(NOT TANDEM_TORCH_ROOT)
  file(GLOB _candidates ${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch)
  if(NOT _candidates)
    message(FATAL_ERROR "LibTorch not found under .deps/: run ./deploy/setup.sh, or pass "
                        "-DTANDEM_TORCH_ROOT=.../site-packages/torch")
  endif()
  list(GET _candidates 0 TANDEM_TORCH_ROOT)
endif()
set(TANDEM_TORCH_ROOT "${TANDEM_TORCH_ROOT}" CACHE PATH "torch package directory" FORCE)
foreach(_l torch_cpu c10)
  if(NOT EXISTS "${TANDEM_TORCH_ROOT}/lib/lib${_l}.so")
    message(FATAL_ERROR "lib${_l}.so is not under ${TANDEM_TORCH_ROOT}/lib")
  endif()
endforeach()

# The wheel's include/ also holds its own google/protobuf and fmt: link to the four folders we need.
set(_farm "${CMAKE_BINARY_DIR}/torch_include")
file(MAKE_DIRECTORY "${_farm}")
foreach(_d ATen c10 caffe2 torch)
  file(CREATE_LINK "${TANDEM_TORCH_ROOT}/include/${_d}" "${_farm}/${_d}" SYMBOLIC)
endforeach()

# libtorch_cpu.so itself needs the CUDA runtime libraries, also where there is no GPU.
get_filename_component(_site "${TANDEM_TORCH_ROOT}/.." ABSOLUTE)
set(_rt "")
foreach(_d "${_site}/nvidia/cu13/lib" "/usr/local/cuda/lib64")
  if(EXISTS "${_d}/libcudart.so.13" AND EXISTS "${_d}/libcupti.so.13")
    set(_rt "${_d}")
    break()
  endif()
endforeach()
if(NOT _rt)
  message(FATAL_ERROR "libcudart.so.13 and libcupti.so.13 not found: run ./deploy/setup.sh")
endif()

add_library(tandem_c10 SHARED IMPORTED GLOBAL)
set_target_properties(tandem_c10 PROPERTIES
  IMPORTED_LOCATION "${TANDEM_TORCH_ROOT}/lib/libc10.so"
  INTERFACE_INCLUDE_DIRECTORIES "${_farm};${_farm}/torch/csrc/api/include")
add_library(tandem_torch_cpu SHARED IMPORTED GLOBAL)
set_target_properties(tandem_torch_cpu PROPERTIES
  IMPORTED_LOCATION "${TANDEM_TORCH_ROOT}/lib/libtorch_cpu.so"
  INTERFACE_LINK_LIBRARIES "tandem_c10"
  # DT_RPATH, not RUNPATH: the libraries that libtorch_cpu needs resolve through it as well.
  # Programs of a package have no folder of this machine in it (TandemPackage.cmake).
  INTERFACE_LINK_OPTIONS "LINKER:--disable-new-dtags;$<$<NOT:$<BOOL:$<TARGET_PROPERTY:TANDEM_PACKAGED>>>:LINKER:-rpath,${_rt}>;LINKER:-rpath-link,${_rt}:${TANDEM_TORCH_ROOT}/lib")
set(TANDEM_CUDA_RUNTIME "${_rt}")
add_library(tandem::torch_cpu ALIAS tandem_torch_cpu)
