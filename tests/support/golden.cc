#include "tests/support/golden.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include <catch2/catch.hpp>

namespace tandem::testing {
namespace {

GoldenCase ParseCase(Json& json) {
  GoldenCase c;
  c.id = json.at("id").get<std::string>();
  c.fn = json.at("fn").get<std::string>();
  c.options = json.value("options", Json::object());
  c.inputs = json.value("inputs", Json::object());
  c.outputs = json.value("outputs", Json());
  if (json.contains("raises")) c.raises = json.at("raises").get<std::string>();
  if (json.contains("scenario")) c.scenario = json.at("scenario").get<std::string>();
  return c;
}

}  // namespace

std::filesystem::path FolderOrSkip(const char* variable, const std::string& fallback) {
  const char* value = std::getenv(variable);
  const std::filesystem::path dir = value != nullptr && *value != '\0' ? value : fallback;
  if (!std::filesystem::is_directory(dir)) {
    std::cout << "skipped: no folder " << dir << " (set " << variable << " to run these tests)"
              << std::endl;
    std::_Exit(77);
  }
  return dir;
}

std::filesystem::path GoldenDirOrSkip() {
  return FolderOrSkip("TANDEM_GOLDEN_DIR", "../shared/data/golden");
}

std::filesystem::path CommittedGoldenDir() { return "tests/golden"; }

Json ReadJsonFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw std::runtime_error(path.string() + " is no JSON");
  return json;
}

GoldenFamily ReadGoldenFamily(const std::filesystem::path& dir, const std::string& family) {
  GoldenFamily result;
  result.dir = dir;
  result.name = family;
  result.root = ReadJsonFile(dir / (family + ".json"));
  for (Json& c : result.root.at("cases")) result.cases.push_back(ParseCase(c));
  result.root.erase("cases");
  if (result.cases.empty()) {
    throw std::runtime_error((dir / (family + ".json")).string() + " holds no cases");
  }
  return result;
}

std::set<std::string> GoldenSkips() {
  std::set<std::string> skips;
  std::ifstream file("tests/golden_skips.txt");
  for (std::string line; std::getline(file, line);) {
    const size_t end = line.find_last_not_of(" \t\r");
    if (end == std::string::npos || line[0] == '#') continue;
    skips.insert(line.substr(0, end + 1));
  }
  return skips;
}

void RunGoldenFamily(const GoldenFamily& family,
                     const std::map<std::string, GoldenCheck>& checks,
                     const std::set<std::string>& covered_elsewhere) {
  const std::set<std::string> skips = GoldenSkips();
  size_t ran = 0, skipped = 0;
  for (const GoldenCase& c : family.cases) {
    INFO("golden case " << family.name << " " << c.id << " (" << c.fn << ")");
    const auto check = checks.find(c.fn);
    if (check != checks.end()) {
      check->second(family, c);
      ++ran;
    } else if (skips.contains(family.name + "/" + c.fn)) {
      ++skipped;
    } else {
      INFO("no check for this fn; list it in tests/golden_skips.txt only if it is not built yet");
      REQUIRE(covered_elsewhere.contains(c.fn));
    }
  }
  std::cout << "golden " << family.name << ": " << ran << " cases checked, " << skipped
            << " skipped by tests/golden_skips.txt" << std::endl;
  REQUIRE(ran + skipped > 0);
}

}  // namespace tandem::testing
