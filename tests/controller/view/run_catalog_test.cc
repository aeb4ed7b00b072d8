#include "controller/view/run_catalog.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <catch2/catch.hpp>
#include <sys/stat.h>

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
  const RunCatalog catalog({root.string()});
  REQUIRE(NamesOf(catalog) ==
          std::map<std::string, std::string>{{"one.a", (root / "one" / "a").string()}});
  MakeRun(root / "two" / "a");
  fs::create_directories(root / "no-run");
  REQUIRE(NamesOf(catalog) ==
          std::map<std::string, std::string>{{"one.a", (root / "one" / "a").string()},
                                             {"two.a", (root / "two" / "a").string()}});
  REQUIRE(catalog.FindDirectory("two.a").value() == (root / "two" / "a").string());
  REQUIRE(absl::IsNotFound(catalog.FindDirectory("a").status()));
  REQUIRE(absl::IsNotFound(catalog.FindDirectory("../two/a").status()));
  REQUIRE(RunCatalog({(root / "nothing").string()}).List().empty());
}

TEST_CASE("Folders whose names differ only in strange letters are told apart, always the same way",
          "[view]") {
  const testing::TempDir dir;
  const fs::path root = dir.path();
  MakeRun(root / "x y");
  const RunCatalog catalog({root.string()});
  const std::string first = catalog.List().front().id;
  REQUIRE(first.starts_with("x_y-"));
  for (const char* name : {"x_y", "x.y", "x/y", "a y", "\xc3\xb6"}) MakeRun(root / name);
  const auto names = NamesOf(catalog);
  REQUIRE(names.size() == 6);
  REQUIRE(names.at(first) == (root / "x y").string());
  REQUIRE(names.at("x_y") == (root / "x_y").string());
  REQUIRE(names.at("x.y") == (root / "x" / "y").string());
  for (const auto& [name, folder] : names) {
    REQUIRE(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789._-") == std::string::npos);
  }
}

TEST_CASE("A root that is a run has its folder's name, with a mark where there are several roots",
          "[view]") {
  const testing::TempDir dir;
  const fs::path root = dir.path();
  MakeRun(root / "x" / "run");
  MakeRun(root / "y" / "run");
  const std::string x = (root / "x" / "run").string(), y = (root / "y" / "run").string();
  REQUIRE(RunCatalog({x + "/"}).List().front().id == "run");
  const auto both = RunCatalog({x + "/", y, x}).List();
  REQUIRE(both.size() == 2);
  REQUIRE(both[0].id.starts_with("run-"));
  REQUIRE(both[1].id.starts_with("run-"));
  REQUIRE(both[0].id != both[1].id);
  REQUIRE(both[0].run_dir == x);
}

TEST_CASE("A pipe is no run, and is not waited for", "[view]") {
  const testing::TempDir dir;
  REQUIRE(mkfifo((dir.path() / "run.db").c_str(), 0600) == 0);
  REQUIRE_FALSE(IsRunDirectory(dir.path()));
}

}  // namespace tandem
