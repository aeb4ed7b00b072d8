# TANDEM_CUDA: AUTO (on where nvcc is found), ON (an error where not), OFF. Sets TANDEM_HAS_CUDA.
# The kernels are linked in; of the driver, cuBLASLt and NCCL nothing is needed before a GPU is used
# (they are looked up then), so that the same programs run on machines without any of them.
set(TANDEM_CUDA AUTO CACHE STRING "CUDA backend: AUTO | ON | OFF")
set(TANDEM_HAS_CUDA OFF)
if(TANDEM_SANITIZE)
  message(STATUS "CUDA backend: off, sanitizers instrument the CPU code alone")
  return()
endif()
if(NOT TANDEM_CUDA)
  message(STATUS "CUDA backend: off (TANDEM_CUDA)")
  return()
endif()
find_program(TANDEM_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDACXX PATH_SUFFIXES bin
             PATHS /usr/local/cuda/bin)
if(NOT TANDEM_NVCC)
  if(NOT TANDEM_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "TANDEM_CUDA=${TANDEM_CUDA}, and there is no nvcc: put a CUDA 13 toolkit on "
                        "the PATH (README, \"GPUs\"), or set TANDEM_CUDA=OFF")
  endif()
  message(STATUS "CUDA backend: off, no nvcc on the PATH nor in /usr/local/cuda (README, \"GPUs\")")
  return()
endif()
set(CMAKE_CUDA_COMPILER ${TANDEM_NVCC})
if(NOT CMAKE_CUDA_ARCHITECTURES OR CMAKE_CUDA_ARCHITECTURES STREQUAL "all")
  # What a release has; deploy/build.sh names one alone, in a third of the time. With PTX of the last
  # one, which the driver of a newer GPU translates at the first start.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
endif()
enable_language(CUDA)
# CMake 3.25 does not know C++20 for nvcc.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} -fmad=false -Xptxas -warn-spills")
if(TANDEM_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${TANDEM_LAUNCHER})
endif()
find_package(CUDAToolkit REQUIRED)
set(TANDEM_HAS_CUDA ON)
message(STATUS "CUDA backend: on, ${TANDEM_NVCC}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
