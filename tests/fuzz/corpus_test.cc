// The committed inputs, through the same functions as a fuzzer's: what once broke stays mended, in
// every build.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/fuzz/call_table.h"
#include "tests/fuzz/target.h"

namespace tandem::fuzz {

std::map<std::string, Target>& Targets() {
  static std::map<std::string, Target> targets;
  return targets;
}

namespace {

namespace fs = std::filesystem;

const fs::path kCorpus = "tests/fuzz/corpus";  // tests run in the root of the sources

std::vector<fs::path> InputsOf(const std::string& target) {
  std::vector<fs::path> inputs;
  for (const auto& entry : fs::directory_iterator(kCorpus / target)) inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

std::string ContentOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_CASE("every folder of committed inputs is one of a fuzz target, and none is empty") {
  std::set<std::string> folders, targets;
  for (const auto& entry : fs::directory_iterator(kCorpus)) {
    folders.insert(entry.path().filename().string());
  }
  for (const auto& [name, target] : Targets()) targets.insert(name);
  REQUIRE(folders == targets);
  for (const std::string& name : targets) {
    CAPTURE(name);
    REQUIRE(!InputsOf(name).empty());
  }
}

TEST_CASE("the committed inputs of the fuzz targets leave every target standing") {
  for (const auto& [name, target] : Targets()) {
    for (const fs::path& path : InputsOf(name)) {
      CAPTURE(path.string());
      REQUIRE_NOTHROW(target(ContentOf(path)));
      REQUIRE_NOTHROW(target(""));
    }
  }
}

// Of the proto files, but for RewardService: the user's program serves that one.
std::set<std::string> DeclaredServices() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator("proto/tandem/v1")) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("service ", 0) == 0) names.insert(line.substr(8, line.find(' ', 8) - 8));
    }
  }
  names.erase("RewardService");
  return names;
}

TEST_CASE("every service has a fuzz target that calls all of its methods") {
  for (const auto& [name, target] : Targets()) target("");  // a table checks itself when it is made
  REQUIRE(FuzzedServices() == DeclaredServices());
}

}  // namespace
}  // namespace tandem::fuzz
