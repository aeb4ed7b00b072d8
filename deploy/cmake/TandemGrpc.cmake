# gRPC, protobuf and absl from Debian's packages: tandem::grpc, tandem::grpc_reflection.
# Static by default, with their symbols hidden, so that nothing clashes with the protobuf inside
# libtorch_cpu.so; shared for ThreadSanitizer.
option(TANDEM_GRPC_STATIC "link gRPC, protobuf and absl from .a archives" ON)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
find_program(TANDEM_PROTOC protoc REQUIRED)
find_program(TANDEM_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

add_library(tandem_grpc INTERFACE)
add_library(tandem::grpc ALIAS tandem_grpc)
add_library(tandem_grpc_reflection INTERFACE)
add_library(tandem::grpc_reflection ALIAS tandem_grpc_reflection)
if(TANDEM_GRPC_STATIC)
  set(_dir /usr/lib/${CMAKE_CXX_LIBRARY_ARCHITECTURE})
  pkg_check_modules(_G REQUIRED grpc++)
  set(_libs ${_dir}/libgrpc++.a ${_dir}/libgrpc.a ${_dir}/libaddress_sorting.a ${_dir}/libre2.a
            ${_dir}/libupb.a ${_dir}/libcares.a ${_dir}/libgpr.a ${_dir}/libprotobuf.a)
  set(_names ${_G_STATIC_LIBRARIES})
  list(REMOVE_DUPLICATES _names)
  foreach(_n ${_names})
    if(_n MATCHES "^absl_")
      list(APPEND _libs ${_dir}/lib${_n}.a)
    endif()
  endforeach()
  list(APPEND _libs ${_dir}/libabsl_raw_hash_set.a ${_dir}/libabsl_hashtablez_sampler.a)
  list(REMOVE_DUPLICATES _libs)
  # One imported archive that drags the others, so that CMake orders its users before it.
  list(POP_FRONT _libs _first)
  list(JOIN _libs "," _group)
  add_library(tandem_grpcpp_a STATIC IMPORTED GLOBAL)
  set_target_properties(tandem_grpcpp_a PROPERTIES IMPORTED_LOCATION ${_first}
    INTERFACE_LINK_LIBRARIES
    "$<LINK_GROUP:RESCAN,${_group}>;OpenSSL::SSL;OpenSSL::Crypto;ZLIB::ZLIB;Threads::Threads;${CMAKE_DL_LIBS};rt")
  target_link_libraries(tandem_grpc INTERFACE tandem_grpcpp_a)
  if(NOT TANDEM_FUZZING)  # clang's sanitizers are an archive too: libraries must find its malloc
    target_link_options(tandem_grpc INTERFACE "LINKER:--exclude-libs,ALL")
  endif()
  add_library(tandem_grpcpp_reflection_a STATIC IMPORTED GLOBAL)
  set_target_properties(tandem_grpcpp_reflection_a PROPERTIES
    IMPORTED_LOCATION ${_dir}/libgrpc++_reflection.a INTERFACE_LINK_LIBRARIES tandem_grpcpp_a)
  # The reflection plugin registers itself in a constructor: link the whole archive.
  target_link_libraries(tandem_grpc_reflection INTERFACE
    "$<LINK_LIBRARY:WHOLE_ARCHIVE,tandem_grpcpp_reflection_a>" tandem_grpc)
else()
  find_package(Protobuf REQUIRED)
  find_package(absl CONFIG REQUIRED)
  find_package(gRPC CONFIG REQUIRED)
  target_link_libraries(tandem_grpc INTERFACE gRPC::grpc++ protobuf::libprotobuf absl::status
    absl::statusor absl::strings absl::flat_hash_map absl::cord absl::time absl::synchronization)
  target_link_options(tandem_grpc_reflection INTERFACE LINKER:--no-as-needed)
  target_link_libraries(tandem_grpc_reflection INTERFACE gRPC::grpc++_reflection tandem_grpc)
endif()
if(TANDEM_SANITIZE MATCHES "thread")
  # Tells ThreadSanitizer what orders threads in these libraries, which are not instrumented. Whole, as
  # nothing names it; not instrumented itself, as its sources say.
  add_library(tandem_grpc_order STATIC ${CMAKE_SOURCE_DIR}/deploy/thread_sanitizer/abseil_order.cc
                                       ${CMAKE_SOURCE_DIR}/deploy/thread_sanitizer/grpc_order.cc)
  target_include_directories(tandem_grpc_order PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(tandem_grpc_order PRIVATE -fno-sanitize=thread)
  target_link_libraries(tandem_grpc INTERFACE "$<LINK_LIBRARY:WHOLE_ARCHIVE,tandem_grpc_order>")
endif()
# absl alone (status, time) comes from the same archives.
add_library(tandem_absl INTERFACE)
add_library(tandem::absl ALIAS tandem_absl)
target_link_libraries(tandem_absl INTERFACE tandem_grpc)
