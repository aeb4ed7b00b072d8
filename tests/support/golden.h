// Reading golden vectors: one JSON file per family, `cases` of {id, fn, options, inputs, outputs or
// raises}. The external set is the folder TANDEM_GOLDEN_DIR (default ../shared/data/golden, seen
// from the repository root, where tests run). Two sets are committed and always there:
// TANDEM_GOLDEN=committed asks for the one that our own scripts worked out (tests/golden), and
// TANDEM_GOLDEN=verl for the one that verl's functions made (tests/golden/verl, compressed).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tandem::testing {

// Ordered, because chat templates print mappings in the order of the file.
using Json = nlohmann::ordered_json;

struct GoldenCase {
  std::string id;
  std::string fn;
  Json options;                       // {} when absent
  Json inputs;                        // {} when absent
  Json outputs;                       // null when `raises` is set
  std::optional<std::string> raises;  // the exception type: the input must be refused
  std::string scenario;               // key into GoldenFamily::scenarios(), "" when absent
};

struct GoldenFamily {
  std::filesystem::path dir;  // what `dir`, `base` and `tokenizer` options are relative to
  std::string name;
  Json root;  // the whole file without `cases`
  std::vector<GoldenCase> cases;

  const Json& Scenario(const GoldenCase& c) const { return root.at("scenarios").at(c.scenario); }
  // The case's own inputs, or its scenario where it names one.
  const Json& Inputs(const GoldenCase& c) const {
    return c.scenario.empty() ? c.inputs : Scenario(c);
  }
};

// The folder named by environment variable `variable`; where it does not exist this throws
// std::runtime_error (a failed test). Without the variable `fallback`; where that does not exist
// this prints a message and ends the process with 77, which CTest shows as skipped.
std::filesystem::path FolderOrSkip(const char* variable, const std::string& fallback);

// FolderOrSkip("TANDEM_GOLDEN_DIR", "../shared/data/golden").
std::filesystem::path GoldenDirOrSkip();

// tests/golden and tests/golden/verl: committed, always there. What is missing there fails.
std::filesystem::path CommittedGoldenDir();
std::filesystem::path VerlGoldenDir();

// The folder of the set that TANDEM_GOLDEN names: "committed": CommittedGoldenDir(); "verl":
// VerlGoldenDir(); unset: GoldenDirOrSkip(). Throws std::runtime_error (a failed test) for any
// other value.
std::filesystem::path GoldenDir();

// Reads FAMILY.json, or FAMILY.json.gz where the folder has that. Throws std::runtime_error (a
// failed test) where neither is there, the text is not JSON or has no cases.
GoldenFamily ReadGoldenFamily(const std::filesystem::path& dir, const std::string& family);
// Unpacks a path that ends in .gz.
Json ReadJsonFile(const std::filesystem::path& path);

using GoldenCheck = std::function<void(const GoldenFamily&, const GoldenCase&)>;

// Runs the check of each case's fn, with the case id as Catch2 context. A fn without a check here
// must be listed: in tests/golden_kinds.txt for another test file, or in tests/golden_skips.txt.
// Requires that `checks` are what golden_kinds.txt says of the calling file and family (not for the
// committed set, which other files may run too), and that some case is checked or skipped. In
// verl's set every kind of `checks` must occur, as a kind that is missing there would prove
// nothing.
void RunGoldenFamily(const GoldenFamily& family,
                     const std::map<std::string, GoldenCheck>& checks,
                     const char* test_file = __builtin_FILE());

// tests/golden_kinds.txt: the test file (without folder and ending) that checks a kind, by
// "family/fn".
std::multimap<std::string, std::string> GoldenKinds();
// tests/golden_skips.txt: the kinds that nothing checks, "family/fn" each.
std::set<std::string> GoldenSkips();

// The file differences.txt of a set, which it need not have: the cases, "family/id" each, in which
// Tandem differs on purpose, under the reason. RunGoldenFamily leaves them out and counts them.
std::set<std::string> GoldenDifferences(const std::filesystem::path& dir);

// Gaps that would go unnoticed: a folder without families, files that are not a family, kinds that
// neither list names, and differences in cases that do not exist. One line each; an empty result
// means that the folder is checked completely.
std::vector<std::string> GoldenGaps(const std::filesystem::path& dir);

}  // namespace tandem::testing
