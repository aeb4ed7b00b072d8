# Compiler options that hold for every target.
find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE)
  # Paths count from the source's root, so that what one clone compiled serves every other; the next two
  # are for precompiled headers (deploy/scripts/compile_header.sh). ccache keeps what was compiled with messages
  # in one language apart from the same in another, so there is one language, whoever starts the build.
  set(TANDEM_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=1 LANG=C.UTF-8 LC_ALL=C.UTF-8
      --unset=LC_CTYPE --unset=LC_MESSAGES ${TANDEM_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${TANDEM_LAUNCHER})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TANDEM_LAUNCHER})
endif()
# Files are named from the root in debug information and messages, whatever the root is called and
# whether ccache made their paths relative: gdb finds them when it is started there.
add_compile_options(
  "$<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${CMAKE_BINARY_DIR}=./build;-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.;-fmacro-prefix-map=../=./>")
# For all alike, or precompiled headers of those with and those without would not match.
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-pthread>")
find_program(TANDEM_MOLD mold)
if(TANDEM_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# The baseline is deliberately old: the programs must start on any x86-64 to say what they need.
# Kernels get their instruction sets from function attributes (common/ops/cpu).
add_compile_options(-march=x86-64-v2)
# A fused multiply-add changes bits; where one is wanted the code writes it out.
add_compile_options(-ffp-contract=off)
set(_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror=unused-result
              -Wno-missing-field-initializers)
if(TANDEM_WERROR)
  list(APPEND _warnings -Werror)
endif()
# Not for nvcc: it has a -Werror of its own, and warns of what it makes of kernels.
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${_warnings}>")

# For what others install (deploy/build.sh --release): a fault in the programs is harder to make use of. Neither
# option touches arithmetic, so that results have the same bits with and without. Off in other builds, which stay
# comparable with earlier benchmarks and their compiler caches. How programs are linked is in TandemTargets.cmake.
option(TANDEM_HARDENED "Compile with guarded stacks and checked library calls" OFF)
if(TANDEM_HARDENED)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
endif()

if(TANDEM_SANITIZE)
  # The standard library checks indices, empty containers and null pointers, at a cost that a benchmark would show.
  add_compile_definitions($<$<COMPILE_LANGUAGE:C,CXX>:_GLIBCXX_ASSERTIONS>)
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
  # What a sanitizer inserts keeps GCC 12 from following a value to where it is set: it takes the states
  # of std::regex for uninitialized, by the dozen, and other warnings drown in that. A release build keeps
  # the warning for the same sources.
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-maybe-uninitialized>")
  if(TANDEM_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(TANDEM_SANITIZE MATCHES "thread")
    # Debian's libprotobuf was built without TSan: its map field must keep the same size here.
    add_compile_options(-U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
    set(TANDEM_GRPC_STATIC OFF CACHE BOOL "" FORCE)
  endif()
endif()
