// Every line of a worker's log says who wrote it, in which step, with which weights.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include <catch2/catch.hpp>

#include "tests/support/cluster_rig.h"

namespace tandem::testing {
namespace {

struct Line {
  std::string text;
  std::string step;  // a number or "-"
  std::string version;
};

std::vector<Line> LinesOfRole(const ClusterRig& rig, const std::string& role) {
  const std::regex form("^\\d{4}-\\S+ [A-Z] " + role +
                        " rank=0 pid=\\d+ step=(-|\\d+) version=(-|\\d+)  .*");
  std::vector<Line> lines;
  std::istringstream log(rig.Log(role));
  for (std::string text; std::getline(log, text);) {
    std::smatch match;
    INFO(text);
    REQUIRE(std::regex_match(text, match, form));
    lines.push_back({text, match[1], match[2]});
  }
  return lines;
}

TEST_CASE("log lines of both workers carry step and weight version") {
  ClusterRig rig({.config = {{"rollout.free_cache_engine", "true"}}});
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  for (const std::string role : {"trainer", "rollout"}) {
    INFO(rig.Log(role));
    const std::vector<Line> lines = LinesOfRole(rig, role);
    // Unknown only until the controller has given the first order.
    bool known = false;
    for (const Line& line : lines) {
      known = known || line.step != "-";
      INFO(line.text);
      REQUIRE((line.step != "-") == known);
    }
    // The last update belongs to step 3 and brings version 3.
    const std::string last =
        role == "trainer" ? "SyncWeights of version 3" : "holds weight version 3";
    const auto synced = std::find_if(lines.begin(), lines.end(), [&](const Line& line) {
      return line.text.find(last) != std::string::npos;
    });
    REQUIRE(synced != lines.end());
    REQUIRE(synced->step == "3");
    REQUIRE(synced->version == "3");
  }
}

TEST_CASE("a log that is too large begins anew, and older ones stay as far as they are kept") {
  ClusterRig rig;
  rig.Set("cluster.log_max_mb", "1");
  rig.Set("cluster.log_files_to_keep", "1");
  const std::filesystem::path logs = rig.run_dir() + "/logs";
  std::filesystem::create_directories(logs);
  const std::string earlier(size_t{2} << 20, 'x');  // what an earlier launch has left
  for (const std::string name : {"trainer-0.log", "controller-0.log"}) {
    std::ofstream(logs / name) << earlier << "\n";
  }
  std::ofstream(logs / "trainer-0.log.1") << "the oldest";
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  for (const std::string role : {"trainer", "controller"}) {
    INFO(rig.Log(role));
    // The line that was one too many, and then the new file.
    const std::string older = rig.RunFile("logs/" + role + "-0.log.1");
    REQUIRE(older.starts_with(earlier + "\n2"));
    REQUIRE(older.size() < earlier.size() + 1000);
    REQUIRE(rig.Log(role).size() < earlier.size());
    REQUIRE_FALSE(rig.HasRunFile("logs/" + role + "-0.log.2"));
  }
  const std::vector<Line> lines = LinesOfRole(rig, "trainer");
  REQUIRE(std::any_of(lines.begin(), lines.end(), [](const Line& line) {
    return line.text.find("SyncWeights of version 3") != std::string::npos;
  }));
}

}  // namespace
}  // namespace tandem::testing
