// The folder of a target that reads folders, one for all inputs of a process: making one for each
// would take longer than reading it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/temp_dir.h"

namespace tandem::fuzz {

class ScratchDir {
 public:
  std::string path() const { return dir_.path(); }
  void Write(const std::string& name, std::string_view content) const {
    const std::filesystem::path file = dir_.path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
  }
  void Clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      std::filesystem::remove_all(entry.path());
    }
  }

 private:
  testing::TempDir dir_;
};

}  // namespace tandem::fuzz
