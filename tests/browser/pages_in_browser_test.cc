// The dashboard's pages in a browser, over a run that was made for it (pages_test.py). Ends with 77
// where there is no browser.
#include <cstdio>
#include <cstdlib>

#include <catch2/catch.hpp>

#include "tests/support/build_folder.h"
#include "tests/support/cluster_rig.h"

namespace tandem::testing {

TEST_CASE("the dashboard's pages stand in a browser") {
  ClusterRig rig({.validation = true});
  const int trained = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(trained == 0);
  const std::string log = rig.dir() / "browser.log";
  TestProcess pages({.argv = {"/usr/bin/python3", "tests/browser/pages_test.py", "--tandemctl",
                              BuildFolder("bin") + "/tandemctl", "--run-dir", rig.run_dir()},
                     .output = log});
  const int code = pages.Wait();
  if (code == 77) {
    std::fputs(FileText(log).c_str(), stderr);
    std::exit(77);
  }
  INFO(FileText(log));
  REQUIRE(code == 0);
}

}  // namespace tandem::testing
