# cmake -DSOURCE=DIR -DVERSION=... -DFLAGS=... -DCUDA=... -DOUTPUT=FILE -P write_build_info.cmake
# Writes ThisBuild() of common/base/build_info.h, and leaves the file as it is where nothing has
# changed. Works without git, as in an unpacked archive.

cmake_minimum_required(VERSION 3.25)

# What programs are made of. Tests, docs and configs are not in them.
set(folders common controller deploy/cmake deploy/launcher parity proto rollout_worker trainer_worker)
set(patterns *.h *.cc *.cu *.inc *.proto *.cmake CMakeLists.txt)

function(digest_of_sources result)
  set(globs)
  foreach(folder ${folders})
    foreach(pattern ${patterns})
      list(APPEND globs ${SOURCE}/${folder}/${pattern})
    endforeach()
  endforeach()
  file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE ${SOURCE} ${globs})
  list(APPEND files CMakeLists.txt)
  list(REMOVE_DUPLICATES files)
  list(SORT files)
  set(lines)
  foreach(file ${files})
    file(SHA256 ${SOURCE}/${file} digest)
    string(APPEND lines "${digest} ${file}\n")
  endforeach()
  string(SHA256 digest "${lines}")
  string(SUBSTRING ${digest} 0 16 digest)
  set(${result} ${digest} PARENT_SCOPE)
endfunction()

# git's answer, trimmed, and "" where there is no git or it fails.
function(ask_git result)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env GIT_OPTIONAL_LOCKS=0 git -C ${SOURCE} ${ARGN}
                  OUTPUT_VARIABLE answer ERROR_QUIET RESULT_VARIABLE code
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT code EQUAL 0)
    set(answer "")
  endif()
  set(${result} "${answer}" PARENT_SCOPE)
endfunction()

function(commit_of_sources result)
  set(${result} unknown PARENT_SCOPE)
  # An archive that was unpacked somewhere below another project's checkout is not of its commit.
  ask_git(top rev-parse --show-toplevel)
  file(REAL_PATH ${SOURCE} here)
  if(NOT top OR NOT top STREQUAL here)
    return()
  endif()
  ask_git(commit rev-parse --short=12 HEAD)
  if(NOT commit)
    return()
  endif()
  ask_git(changes status --porcelain -- CMakeLists.txt ${folders})
  if(changes)
    string(APPEND commit -dirty)
  endif()
  set(${result} ${commit} PARENT_SCOPE)
endfunction()

digest_of_sources(sources)
commit_of_sources(commit)
foreach(name VERSION FLAGS CUDA)
  string(REPLACE "\\" "\\\\" ${name} "${${name}}")
  string(REPLACE "\"" "\\\"" ${name} "${${name}}")
endforeach()
set(text "// Written by deploy/cmake/write_build_info.cmake.
#include \"common/base/build_info.h\"

namespace tandem {

const BuildInfo& ThisBuild() {
  static constexpr BuildInfo kThisBuild = {
      .version = \"${VERSION}\",
      .commit = \"${commit}\",
      .sources = \"${sources}\",
      .flags = \"${FLAGS}\",
      .cuda = \"${CUDA}\"};
  return kThisBuild;
}

}  // namespace tandem
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
