// Ten thousand tokens of a published model, decoded, prefilled and trained on, have the same
// log-probs in every bit.
#include "parity/parity.h"

#include <catch2/catch.hpp>

#include "tests/real_model/real_model.h"

namespace tandem::testing {
namespace {

TEST_CASE("log-probs of 10,000 tokens of the real model are the same on all sides") {
  ParityOptions options;
  options.model_dir = RealModelDir();
  options.tokens = 10000;
  options.threads = 2;
  const auto report = RunParity(options);
  INFO(report.status().ToString());
  REQUIRE(report.ok());
  INFO(ParityText(*report));
  REQUIRE(report->ok());
  for (const SideComparison& pair : report->comparisons) REQUIRE(pair.identical >= 10000);
}

}  // namespace
}  // namespace tandem::testing
