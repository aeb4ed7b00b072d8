// Identifies a program's build: printed by --version, kept in the run record, compared at
// registration.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// All views refer to string literals.
struct BuildInfo {
  std::string_view version;  // of the project: "0.1.0"
  std::string_view commit;   // 12 hex digits, then "-dirty" where sources were changed; "unknown"
  std::string_view sources;  // 16 hex digits: digest of all files that programs are built from
  std::string_view flags;    // compiler and options: "Release, GNU 12.2.0, ..."
  std::string_view cuda;     // architectures of the kernels, or "off"
};

// The build of this program. Every build writes it (deploy/cmake/TandemVersion.cmake) into one
// source, tandem::build_info, that only programs link: a new commit compiles one file and relinks
// programs, but no tests.
const BuildInfo& ThisBuild();

// "tandem-trainer 0.1.0, commit 0123456789ab, sources 0123456789abcdef, Release, ..., CUDA off"
std::string BuildText(const BuildInfo& build, std::string_view program = "tandem");

// What the programs of one job must have in common: version, sources and flags. Not the commit, as
// two commits that differ in their documentation are the same programs; nor CUDA: a controller
// needs none, and workers register how they compute (docs/reference/numerics.md). Empty for
// BuildInfo{}.
std::string BuildId(const BuildInfo& build);

}  // namespace tandem
