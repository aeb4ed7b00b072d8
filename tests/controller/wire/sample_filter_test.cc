#include "controller/wire/sample_filter.h"

#include <string>

#include <catch2/catch.hpp>

#include "common/types/sample.h"
#include "controller/store/run_store.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Message;
using testing::Says;

}  // namespace

TEST_CASE("A filter is a list of conditions", "[filter]") {
  const auto filter =
      ParseSampleFilter(" reward<=0 and length > 200  and kind=mixed and end != cut ");
  REQUIRE(filter.ok());
  REQUIRE(filter->size() == 4);
  REQUIRE((*filter)[0].field == SampleField::kReward);
  REQUIRE((*filter)[0].comparison == Comparison::kAtMost);
  REQUIRE((*filter)[0].number == 0);
  REQUIRE((*filter)[1].comparison == Comparison::kGreater);
  REQUIRE((*filter)[1].number == 200);
  REQUIRE((*filter)[2].number == static_cast<double>(GroupKind::kMixed));
  REQUIRE((*filter)[3].comparison == Comparison::kNotEqual);
  REQUIRE((*filter)[3].number == static_cast<double>(FinishReason::kCut));
  REQUIRE(ParseSampleFilter("reward==1")->front().comparison == Comparison::kEqual);
  REQUIRE(ParseSampleFilter("min_log_prob<-1.5e1")->front().number == -15);
  REQUIRE(ParseSampleFilter("  ")->empty());
}

TEST_CASE("What is no filter is refused with what may stand there", "[filter]") {
  const auto error_of = [](const std::string& text) { return ParseSampleFilter(text).status(); };
  REQUIRE(Says(error_of("rewards>0"), "no field \"rewards\"; they have reward, length"));
  REQUIRE(Says(error_of("reward"), "one of = != < <= > >="));
  REQUIRE(Says(error_of("reward>"), "\"\" is no number"));
  REQUIRE(Says(error_of("reward>0;drop table samples"), "is no number"));
  REQUIRE(Says(error_of("reward>nan"), "is no number"));
  REQUIRE(Says(error_of("reward>0 or length>1"), "joined by \"and\", not by \"or\""));
  REQUIRE(Says(error_of("reward>0 and"), "no field \"\""));
  REQUIRE(Says(error_of("end=late"), "no end of a sample; there are stop, length"));
  REQUIRE(Says(error_of("kind<mixed"), "compared by = or !="));
  std::string many = "reward>0";
  for (int i = 0; i < 16; ++i) many += " and reward>0";
  REQUIRE(Says(error_of(many), "at most 16"));
}

TEST_CASE("An order is a field, with a minus for the largest first", "[filter]") {
  REQUIRE_FALSE(ParseSampleOrder("")->has_value());
  const auto largest = ParseSampleOrder("-length");
  REQUIRE((*largest)->field == SampleField::kLength);
  REQUIRE((*largest)->descending);
  REQUIRE_FALSE((*ParseSampleOrder("reward"))->descending);
  REQUIRE(Says(ParseSampleOrder("-").status(), "no field"));
  REQUIRE(Says(ParseSampleOrder("reward desc").status(), "no field"));
}

}  // namespace tandem
