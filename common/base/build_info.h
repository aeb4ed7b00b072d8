// Which build a program is: told by --version, kept in the run record, compared at registration.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// The texts are views of literals: they live as long as the program.
struct BuildInfo {
  std::string_view version;  // of the project: "0.1.0"
  std::string_view commit;   // 12 hex digits, then "-dirty" where sources were changed; "unknown"
  std::string_view sources;  // 16 hex digits, the digest of every file that programs are made of
  std::string_view flags;    // what else results follow from: "Release, GNU 12.2.0, ..."
  std::string_view cuda;     // architectures of the kernels, or "off"
};

// Of this program. Written by every build (deploy/cmake/TandemVersion.cmake) into one source that
// only programs link, tandem::build_info: a new commit compiles one file and links programs, no
// tests.
const BuildInfo& ThisBuild();

// "tandem-trainer 0.1.0, commit 0123456789ab, sources 0123456789abcdef, Release, ..., CUDA off"
std::string BuildText(const BuildInfo& build, std::string_view program = "tandem");

// What the programs of one job must have in common: version, sources and flags. Not the commit, as
// two commits that differ in their documentation are the same programs; nor CUDA: a controller
// needs none, and workers register how they compute (docs/reference/numerics.md). Empty for
// BuildInfo{}.
std::string BuildId(const BuildInfo& build);

}  // namespace tandem
