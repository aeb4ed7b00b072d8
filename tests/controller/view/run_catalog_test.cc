#include "controller/view/run_catalog.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

void MakeRun(const fs::path& dir) {
  fs::create_directories(dir);
  std::ofstream(dir / "run.db") << "a run";
}

std::map<std::string, std::string> NamesOf(const RunCatalog& catalog) {
  std::map<std::string, std::string> names;
  for (const CatalogEntry& entry : catalog.List()) names[entry.id] = entry.run_dir;
  return names;
}

}  // namespace

TEST_CASE("Runs are named by their path from the root, and keep their names", "[view]") {
  const testing::TempDir dir;
  const fs::path root = dir.path();
  MakeRun(root / "one" / "a");
  const RunCatalog catalog({root.string(), (root / "one" / "a").string()});
  REQUIRE(NamesOf(catalog) ==
          std::map<std::string, std::string>{{"one.a", (root / "one" / "a").string()}});
  MakeRun(root / "two" / "a");
  MakeRun(root / "b c");
  fs::create_directories(root / "no-run");
  REQUIRE(NamesOf(catalog) ==
          std::map<std::string, std::string>{{"one.a", (root / "one" / "a").string()},
                                             {"two.a", (root / "two" / "a").string()},
                                             {"b_c", (root / "b c").string()}});
  REQUIRE(catalog.FindDirectory("two.a").value() == (root / "two" / "a").string());
  REQUIRE(absl::IsNotFound(catalog.FindDirectory("a").status()));
  REQUIRE(absl::IsNotFound(catalog.FindDirectory("../two/a").status()));
}

TEST_CASE("A root that is a run has its folder's name, and equal names get numbers", "[view]") {
  const testing::TempDir dir;
  const fs::path root = dir.path();
  MakeRun(root / "x" / "run");
  MakeRun(root / "y" / "run");
  const RunCatalog catalog({(root / "x" / "run").string() + "/", (root / "y" / "run").string()});
  REQUIRE(NamesOf(catalog) ==
          std::map<std::string, std::string>{{"run", (root / "x" / "run").string()},
                                             {"run.2", (root / "y" / "run").string()}});
  REQUIRE(RunCatalog({(root / "nothing").string()}).List().empty());
}

}  // namespace tandem
