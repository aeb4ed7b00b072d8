// Where the build of the running test program is: tests, the programs under test and helpers of
// tests each have a folder in it. Nothing of a path is compiled in, so that what one clone compiled
// serves every other.
#pragma once

#include <filesystem>
#include <string>

namespace tandem::testing {

// The folder `name` beside the one that the running program is in: bin, tests, emulated.
inline std::string BuildFolder(const std::string& name) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  return (program.parent_path().parent_path() / name).string();
}

}  // namespace tandem::testing
