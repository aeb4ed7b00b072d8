#include "controller/report/format.h"

#include <catch2/catch.hpp>

#include "controller/report/run_tables.h"
#include "controller/store/run_store.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

TEST_CASE("Sizes and times read as people write them", "[report][format]") {
  REQUIRE(FormatBytes(0) == "0");
  REQUIRE(FormatBytes(1500) == "2 KiB");
  REQUIRE(FormatBytes(int64_t{300} << 20) == "300 MiB");
  REQUIRE(FormatBytes(int64_t{5} << 30) == "5.00 GiB");
  REQUIRE(FormatSeconds(0.85) == "850 ms");
  REQUIRE(FormatSeconds(4.213) == "4.21 s");
  REQUIRE(FormatSeconds(0) == "0 s");
  REQUIRE(FormatSeconds(45.678) == "45.7 s");
  REQUIRE(FormatSeconds(95.69) == "1m36s");
  REQUIRE(FormatSeconds(192) == "3m12s");
  REQUIRE(FormatSeconds(7500) == "2h05m");
}

TEST_CASE("Sparkline spans the range of its values", "[report][format]") {
  REQUIRE(Sparkline({0.0, 1.0}) == "▁█");
  REQUIRE(Sparkline({0.5, 0.5}) == "▄▄");
  REQUIRE(Sparkline({}).empty());
}

TEST_CASE("a cell of a table does not steer the terminal", "[report][format]") {
  REQUIRE(FormatTable({{"run", "state"}, {"a\x1b[2J\nb", "killed"}}) ==
          "run           state\na\\x1b[2J\\nb  killed\n");
}

TEST_CASE("FormatTable aligns columns of wide characters", "[report][format]") {
  REQUIRE(FormatTable({{"phase", "s"}, {"é", "12"}}) == "phase   s\né      12\n");
}

TEST_CASE("EscapeHtml leaves nothing that a browser would run", "[report][format]") {
  REQUIRE(EscapeHtml("<script>\"&'") == "&lt;script&gt;&quot;&amp;&#39;");
  REQUIRE(EscapeHtml(std::string("a\0b", 3)) ==
          "a\xEF\xBF\xBD"
          "b");
}

TEST_CASE("TotalPhases adds seconds and takes the largest peak", "[report][tables]") {
  StepRecord one, two;
  one.phases = {{"generate", 1.0, 100}, {"train", 3.0, 500}};
  two.phases = {{"generate", 3.0, 300}, {"train", 3.0, 400}};
  const auto totals = TotalPhases({one, two});
  REQUIRE(totals[0].mean_seconds == 2.0);
  REQUIRE(totals[0].share == Approx(0.4));
  REQUIRE(totals[0].peak_bytes == 300);
  REQUIRE(totals[1].peak_bytes == 500);
}
