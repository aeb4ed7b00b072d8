// A config file in a temporary directory that the destructor removes.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>
#include <unistd.h>

namespace tandem::testing {

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& yaml) {
    std::string pattern = (std::filesystem::temp_directory_path() / "config-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    dir_ = pattern;
    std::ofstream(path()) << yaml;
  }
  ~ConfigFile() { std::filesystem::remove_all(dir_); }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;

  std::string path() const { return dir_ + "/run.yaml"; }
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

}  // namespace tandem::testing
