# tandem_library(NAME tandem_x SRCS ... DEPS ...)        a static library, alias tandem::x
# tandem_executable(NAME tandem-x SRCS ... DEPS ...)     a program, placed in ${CMAKE_BINARY_DIR}/bin
# Includes are written from the repository root.
function(tandem_library)
  cmake_parse_arguments(A "" "NAME" "SRCS;DEPS" ${ARGN})
  add_library(${A_NAME} STATIC ${A_SRCS})
  string(REPLACE "tandem_" "tandem::" _alias ${A_NAME})
  add_library(${_alias} ALIAS ${A_NAME})
  target_include_directories(${A_NAME} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${A_NAME} PUBLIC ${A_DEPS})
  tandem_use_precompiled(${A_NAME} tandem_library_headers)
  tandem_unity(${A_NAME})
endfunction()

function(tandem_executable)
  cmake_parse_arguments(A "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${A_NAME} ${A_SRCS})
  target_include_directories(${A_NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${A_NAME} PRIVATE ${A_DEPS})
  set_target_properties(${A_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  tandem_run_anywhere(${A_NAME})
  tandem_harden_link(${A_NAME})
  tandem_unity(${A_NAME})
endfunction()

# An address in the program is another one in each process, and what the loader writes (tables of functions among it) is
# read-only once the program runs. deploy/package/elf.py checks it.
function(tandem_harden_link target)
  target_link_options(${target} PRIVATE -pie LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
endfunction()

# In a folder that is copied elsewhere the libraries lie beside a program's own; DT_RPATH holds for
# the libraries of theirs as well.
function(tandem_run_anywhere target)
  set_target_properties(${target} PROPERTIES BUILD_RPATH "\$ORIGIN/../lib")
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endfunction()

# Adds every direct subfolder that has a CMakeLists.txt.
function(tandem_add_subdirectories dir)
  file(GLOB _children CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*/CMakeLists.txt)
  foreach(_child ${_children})
    get_filename_component(_d ${_child} DIRECTORY)
    add_subdirectory(${_d})
  endforeach()
endfunction()

# tandem_source_for_isa(TARGET tandem_x SOURCE y_by_isa.cc ISA avx2 TABLE kSymbol OPTIONS ...)
# Adds SOURCE to TARGET once more, compiled with OPTIONS for one instruction set. The source defines
# TANDEM_ISA_TABLE, which stands for TABLE; TANDEM_ISA_NAME is "avx2", and TANDEM_ISA_AVX2 is defined.
function(tandem_source_for_isa)
  cmake_parse_arguments(A "" "TARGET;SOURCE;ISA;TABLE" "OPTIONS" ${ARGN})
  get_filename_component(_stem ${A_SOURCE} NAME_WE)
  string(MAKE_C_IDENTIFIER ${A_ISA} _isa)
  string(TOUPPER ${_isa} _macro)
  set(_objects ${A_TARGET}_${_stem}_${_isa})
  add_library(${_objects} OBJECT ${A_SOURCE})
  get_target_property(_libraries ${A_TARGET} LINK_LIBRARIES)
  target_link_libraries(${_objects} PRIVATE ${_libraries})
  target_include_directories(${_objects} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${_objects} PRIVATE ${A_OPTIONS})
  target_compile_definitions(${_objects} PRIVATE
    TANDEM_ISA_NAME="${A_ISA}" TANDEM_ISA_TABLE=${A_TABLE} TANDEM_ISA_${_macro})
  target_sources(${A_TARGET} PRIVATE $<TARGET_OBJECTS:${_objects}>)
endfunction()

# tandem_cuda_kernels(NAME tandem_x_kernels KERNELS a.cu ... DEPS ...)
# tandem::x_kernels: the kernels as nvcc compiles them, only with TANDEM_HAS_CUDA. The properties name
# what the library is made of, for tests/emulator/CMakeLists.txt, which compiles the same files as C++.
function(tandem_cuda_kernels)
  cmake_parse_arguments(A "" "NAME" "KERNELS;DEPS" ${ARGN})
  if(TANDEM_HAS_CUDA)
    tandem_library(NAME ${A_NAME} SRCS ${A_KERNELS} DEPS ${A_DEPS})
  endif()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR}
             OUTPUT_VARIABLE _folder)
  list(TRANSFORM A_KERNELS PREPEND ${_folder}/)
  set_property(GLOBAL APPEND PROPERTY TANDEM_KERNEL_LIBRARIES ${A_NAME})
  set_property(GLOBAL PROPERTY TANDEM_KERNELS_${A_NAME} ${A_KERNELS})
  set_property(GLOBAL PROPERTY TANDEM_KERNEL_DEPS_${A_NAME} ${A_DEPS})
endfunction()
