#include "common/rollout_correction/thresholds.h"

#include <cmath>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::string ThresholdsRefusal(const std::string& names, const std::string& thresholds) {
  const auto criteria = ParseRejection(names, thresholds);
  REQUIRE(criteria.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(criteria.status().message());
}

TEST_CASE("One number truncates weights, two are a band", "[rollout_correction]") {
  const auto truncated = ParseImportanceBounds("2.5");
  REQUIRE(truncated->upper == 2.5f);
  REQUIRE_FALSE(truncated->lower.has_value());
  const auto band = ParseImportanceBounds(" 0.5_2 ");
  REQUIRE(band->lower == 0.5f);
  REQUIRE(band->upper == 2.0f);
  REQUIRE(ParseImportanceBounds("2_2").ok());
  REQUIRE(std::isinf(ParseImportanceBounds("0.5_inf")->upper));
}

TEST_CASE("Bounds of weights that make no sense are refused with the text and a remedy",
          "[rollout_correction]") {
  for (const std::string text :
       {"", "0", "-1", "0_2", "3_2", "true", "nan", "0.5_", "_2", "1_2_", "0.5__2", "2.0x", "0x2",
        "2,3", "2,", "0.5 2.0", "1e39", "1e-60"}) {
    const auto bounds = ParseImportanceBounds(text);
    INFO(text);
    REQUIRE(bounds.status().code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(bounds.status().message().find("\"" + text + "\"") != std::string::npos);
    REQUIRE(bounds.status().message().find("such as 0.5_2.0") != std::string::npos);
  }
}

TEST_CASE("Every criterion of the reference is known, and no other", "[rollout_correction]") {
  for (const std::string level : {"token", "seq_sum", "seq_mean", "seq_max"}) {
    for (const std::string kind : {"k1", "k2", "k3"}) {
      const std::string name = level + "_" + kind;
      INFO(name);
      const auto criteria = ParseRejection(name, "2");
      REQUIRE(criteria.ok() == (name != "seq_max_k1"));
      if (criteria.ok()) REQUIRE(criteria->front().name == name);
    }
  }
  for (const std::string name :
       {"token", "token_k0", "token_k4", "token_k12", "k1", "seq_min_k2"}) {
    REQUIRE(ThresholdsRefusal(name, "2").find("\"" + name +
                                              "\" is not a rejection criterion; use token_k1") !=
            std::string::npos);
  }
  REQUIRE(ThresholdsRefusal(" , ", "2").find("names no rejection criterion") != std::string::npos);
}

TEST_CASE("A ratio's bounds become logarithms; one bound stands for its reciprocal too",
          "[rollout_correction]") {
  const auto both = ParseRejection("token_k1", "0.5_4");
  REQUIRE(both->front().lower == static_cast<float>(std::log(0.5)));
  REQUIRE(both->front().upper == static_cast<float>(std::log(4.0)));
  const auto one = ParseRejection("seq_mean_k1", "2");
  REQUIRE(one->front().lower == static_cast<float>(std::log(0.5)));
  REQUIRE(one->front().upper == static_cast<float>(std::log(2.0)));
  REQUIRE(ThresholdsRefusal("token_k1", "0.5").find("at least 1") != std::string::npos);
  REQUIRE(ThresholdsRefusal("token_k1", "inf").find("finite") != std::string::npos);
  REQUIRE(ThresholdsRefusal("token_k1", "2_1").find("above the upper bound") != std::string::npos);
}

TEST_CASE("k2 and k3 have an upper bound only", "[rollout_correction]") {
  const auto criteria = ParseRejection("seq_max_k3", "0.05");
  REQUIRE(criteria->front().upper == 0.05f);
  REQUIRE_FALSE(criteria->front().lower.has_value());
  REQUIRE(ThresholdsRefusal("token_k2", "0.1_0.2").find("upper bound only") != std::string::npos);
}

TEST_CASE("Criteria join with commas and drop doubles; thresholds are one or as many",
          "[rollout_correction]") {
  const auto each = ParseRejection("token_k1, seq_max_k2 ,token_k1", "0.6_1.6, 0.5");
  REQUIRE(each->size() == 2);
  REQUIRE((*each)[0].upper == static_cast<float>(std::log(1.6)));
  REQUIRE((*each)[1].upper == 0.5f);
  REQUIRE((*each)[1].level == RejectionLevel::kSequenceMax);
  const auto shared = ParseRejection("token_k2,seq_sum_k3", "0.3");
  REQUIRE((*shared)[1].upper == 0.3f);
  REQUIRE(ThresholdsRefusal("token_k2,seq_sum_k3", "1,2,3").find("3 thresholds for 2 criteria") !=
          std::string::npos);
  for (const std::string nothing : {"", " ", ",", " , "}) {
    REQUIRE(ThresholdsRefusal("token_k2", nothing).find("0 thresholds") != std::string::npos);
  }
  REQUIRE(ThresholdsRefusal("token_k2,token_k3", "1,0").find("threshold \"0\" of token_k3") !=
          std::string::npos);
}

TEST_CASE("Thresholds that cannot be read are refused with the grammar", "[rollout_correction]") {
  for (const std::string text : {"1.5x,2", "0,5_2", "0.1,0.5_2", "1e39", "2;3", "nan"}) {
    INFO(text);
    const std::string refusal = ThresholdsRefusal(
        text.find(',') == std::string::npos ? "token_k2" : "token_k1,token_k2", text);
    REQUIRE(refusal.find("\"lo_hi\" such as 0.5_2.0") != std::string::npos);
  }
  REQUIRE(ThresholdsRefusal("token_k1", "0.5_").find("a bound is missing") != std::string::npos);
  REQUIRE(ThresholdsRefusal("token_k2", "1e39").find("beyond the range of a float") !=
          std::string::npos);
}

// The bounds are those that verl 0.9.1 reads: _parse_rollout_is_threshold and
// _parse_rollout_rs_thresholds of rollout_corr_helper.py.
TEST_CASE("Thresholds of several parts have the bounds that verl reads", "[rollout_correction]") {
  struct Band {
    std::string text;
    std::optional<double> lower;
    double upper;
  };
  for (const Band& verl :
       {Band{"+2", {}, 2}, Band{"2.", {}, 2}, Band{"1e400", {}, INFINITY},
        Band{" 0.5 _ 2.0 ", 0.5, 2}, Band{"+0.5_+2", 0.5, 2}, Band{"1_2_3", 1, 23},
        Band{"0.5_1_000", 0.5, 1000}, Band{".5_Infinity", 0.5, INFINITY}}) {
    INFO(verl.text);
    const auto weights = ParseImportanceBounds(verl.text);
    REQUIRE(weights.ok());
    REQUIRE(weights->upper == static_cast<float>(verl.upper));
    REQUIRE(weights->lower.has_value() == verl.lower.has_value());
    if (!verl.lower) continue;
    REQUIRE(*weights->lower == static_cast<float>(*verl.lower));
    const auto criteria = ParseRejection("token_k1", verl.text);
    REQUIRE(criteria->front().lower == static_cast<float>(std::log(*verl.lower)));
    REQUIRE(criteria->front().upper == static_cast<float>(std::log(verl.upper)));
  }
  // Bounds on a ratio are used as logarithms, which a float holds; {0.5, 2} and 0.1, {0.5, 2}
  // and 2.
  REQUIRE(ParseRejection("token_k1", "1e-60_2")->front().lower ==
          static_cast<float>(std::log(1e-60)));
  REQUIRE(ParseRejection("token_k2", "1e-60")->front().upper == 0.0f);
  for (const std::string text : {"0.5_2,,0.1", "0.5_2,0.1,", " 0.5_2 , 0.1 ", "2,", ",2"}) {
    INFO(text);
    const auto criteria = ParseRejection("token_k1,token_k2", text);
    REQUIRE((*criteria)[0].lower == static_cast<float>(std::log(0.5)));
    REQUIRE((*criteria)[0].upper == static_cast<float>(std::log(2.0)));
    REQUIRE((*criteria)[1].upper == (text.find("0.1") == std::string::npos ? 2.0f : 0.1f));
  }
}

}  // namespace
}  // namespace tandem
