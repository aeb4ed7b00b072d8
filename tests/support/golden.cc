#include "tests/support/golden.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include <catch2/catch.hpp>
#include <zlib.h>

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

// Without blank lines and # comments.
std::vector<std::string> ListLines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path + "; tests run in the repository root");
  for (std::string line; std::getline(file, line);) {
    const size_t end = line.find_last_not_of(" \t\r");
    if (end == std::string::npos || line[0] == '#') continue;
    lines.push_back(line.substr(0, end + 1));
  }
  return lines;
}

// The whole file, unpacked where it is a gzip file (zlib hands plain text through as it is).
std::string ReadPacked(const std::filesystem::path& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("cannot open " + path.string());
  std::string text, part(1 << 16, '\0');
  int count = 0;
  while ((count = gzread(file, part.data(), static_cast<unsigned>(part.size()))) > 0) {
    text.append(part, 0, static_cast<size_t>(count));
  }
  // Closing tells of a file that ends too early.
  if (gzclose_r(file) != Z_OK || count < 0) {
    throw std::runtime_error(path.string() +
                             " is damaged: zlib cannot unpack it; take it from git again");
  }
  return text;
}

// NAME.json or NAME.json.gz; the plain one where neither is there, so that the error names it.
std::filesystem::path FamilyFile(const std::filesystem::path& dir, const std::string& family) {
  const std::filesystem::path packed = dir / (family + ".json.gz");
  return std::filesystem::exists(packed) ? packed : dir / (family + ".json");
}

// "" where the file is not a family.
std::string FamilyName(const std::filesystem::path& file) {
  const std::string name = file.filename();
  for (const std::string ending : {".json", ".json.gz"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return "";
}

// Requires that golden_kinds.txt lists exactly the kinds that `test_file` checks.
void RequireListed(const std::string& test_file,
                   const std::string& family,
                   const std::map<std::string, GoldenCheck>& checks,
                   const std::multimap<std::string, std::string>& kinds) {
  std::set<std::string> listed, checked;
  for (const auto& [kind, by] : kinds) {
    if (by == test_file && kind.starts_with(family + "/")) listed.insert(kind);
  }
  for (const auto& [fn, check] : checks) checked.insert(family + "/" + fn);
  INFO("tests/golden_kinds.txt must list what " << test_file << " checks of family " << family);
  REQUIRE(listed == checked);
}

}  // namespace

std::filesystem::path FolderOrSkip(const char* variable, const std::string& fallback) {
  const char* value = std::getenv(variable);
  const bool named = value != nullptr && *value != '\0';
  const std::filesystem::path dir = named ? value : fallback;
  if (std::filesystem::is_directory(dir)) return dir;
  if (named) {
    throw std::runtime_error(std::string(variable) + " names " + dir.string() +
                             ", which is not a folder; correct it, or unset it for " + fallback);
  }
  std::cout << "skipped: no folder " << dir << " (set " << variable << " to run these tests)"
            << std::endl;
  std::_Exit(77);
}

std::filesystem::path GoldenDirOrSkip() {
  return FolderOrSkip("TANDEM_GOLDEN_DIR", "../shared/data/golden");
}

std::filesystem::path CommittedGoldenDir() { return "tests/golden"; }

std::filesystem::path VerlGoldenDir() { return "tests/golden/verl"; }

std::filesystem::path GoldenDir() {
  const char* value = std::getenv("TANDEM_GOLDEN");
  const std::string set = value != nullptr ? value : "";
  if (set == "committed") return CommittedGoldenDir();
  if (set == "verl") return VerlGoldenDir();
  if (set.empty()) return GoldenDirOrSkip();
  throw std::runtime_error("TANDEM_GOLDEN is '" + set +
                           "'; only 'committed' and 'verl' are known, or unset it");
}

Json ReadJsonFile(const std::filesystem::path& path) {
  Json json = Json::parse(ReadPacked(path), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw std::runtime_error(path.string() + " is not JSON");
  return json;
}

GoldenFamily ReadGoldenFamily(const std::filesystem::path& dir, const std::string& family) {
  GoldenFamily result;
  result.dir = dir;
  result.name = family;
  const std::filesystem::path file = FamilyFile(dir, family);
  result.root = ReadJsonFile(file);
  for (Json& c : result.root.at("cases")) result.cases.push_back(ParseCase(c));
  result.root.erase("cases");
  if (result.cases.empty()) {
    throw std::runtime_error(file.string() + " holds no cases");
  }
  return result;
}

std::set<std::string> GoldenSkips() {
  const std::vector<std::string> lines = ListLines("tests/golden_skips.txt");
  return {lines.begin(), lines.end()};
}

std::set<std::string> GoldenDifferences(const std::filesystem::path& dir) {
  const std::filesystem::path list = dir / "differences.txt";
  if (!std::filesystem::exists(list)) return {};
  const std::vector<std::string> lines = ListLines(list);
  return {lines.begin(), lines.end()};
}

std::multimap<std::string, std::string> GoldenKinds() {
  std::multimap<std::string, std::string> kinds;
  for (const std::string& line : ListLines("tests/golden_kinds.txt")) {
    std::istringstream words(line);
    std::string kind, test_file;
    words >> kind >> test_file;
    kinds.emplace(kind, test_file);
  }
  return kinds;
}

std::vector<std::string> GoldenGaps(const std::filesystem::path& dir) {
  const auto kinds = GoldenKinds();
  const std::set<std::string> skips = GoldenSkips();
  std::set<std::string> gaps;
  std::set<std::string> differences = GoldenDifferences(dir);
  size_t families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = FamilyName(entry.path());
    if (name.empty()) continue;
    ++families;
    try {
      for (const GoldenCase& c : ReadGoldenFamily(dir, name).cases) {
        differences.erase(name + "/" + c.id);
        const std::string kind = name + "/" + c.fn;
        if (kinds.contains(kind) || skips.contains(kind)) continue;
        gaps.insert(kind + ": neither tests/golden_kinds.txt nor tests/golden_skips.txt has it");
      }
    } catch (const std::exception& error) {
      gaps.insert(entry.path().string() + ": " + error.what());
    }
  }
  for (const std::string& stale : differences) {
    gaps.insert((dir / "differences.txt").string() + ": no family has the case " + stale);
  }
  if (families == 0) gaps.insert(dir.string() + ": no golden family (*.json) in this folder");
  return {gaps.begin(), gaps.end()};
}

void RunGoldenFamily(const GoldenFamily& family,
                     const std::map<std::string, GoldenCheck>& checks,
                     const char* test_file) {
  const std::set<std::string> skips = GoldenSkips();
  const auto kinds = GoldenKinds();
  if (family.dir != CommittedGoldenDir()) {
    RequireListed(std::filesystem::path(test_file).stem(), family.name, checks, kinds);
  }
  const std::set<std::string> differences = GoldenDifferences(family.dir);
  std::map<std::string, size_t> ran;  // by kind
  size_t skipped = 0, different = 0;
  for (const GoldenCase& c : family.cases) {
    const std::string kind = family.name + "/" + c.fn;
    INFO("golden case " << kind << " " << c.id);
    const auto check = checks.find(c.fn);
    if (check != checks.end() && differences.contains(family.name + "/" + c.id)) {
      ++different;
    } else if (check != checks.end()) {
      check->second(family, c);
      ++ran[c.fn];
    } else if (skips.contains(kind)) {
      ++skipped;
    } else {
      INFO(
          "no check for this kind; list it in tests/golden_skips.txt only if Tandem has no such "
          "thing");
      REQUIRE(kinds.contains(kind));
    }
  }
  size_t total = 0;
  for (const auto& [fn, count] : ran) total += count;
  std::cout << "golden " << family.name << ": " << total << " cases checked, " << skipped
            << " skipped by tests/golden_skips.txt, " << different << " by differences.txt"
            << std::endl;
  REQUIRE(total + skipped > 0);
  if (family.dir == VerlGoldenDir()) REQUIRE(ran.size() == checks.size());
}

}  // namespace tandem::testing
