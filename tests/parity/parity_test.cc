#include "parity/parity.h"

#include <cmath>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/process/threads.h"
#include "tests/parity/disturbed_ops.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace tandem::testing {
namespace {

ParityOptions TinyOptions(const TempDir& dir, const TinyModelOptions& model = {}) {
  REQUIRE(WriteTinyModel(dir.path(), model).ok());
  ParityOptions options;
  options.model_dir = dir.path();
  options.tokens = 300;
  options.response_tokens = 20;
  options.max_num_seqs = 6;
  options.max_num_batched_tokens = 100;
  return options;
}

ParityReport Report(const ParityOptions& options) {
  const auto report = RunParity(options);
  INFO(report.status().ToString());
  REQUIRE(report.ok());
  return *report;
}

MakeOps Disturbed(const Fault& fault) {
  return [fault]() -> absl::StatusOr<std::unique_ptr<ForwardOps>> {
    auto ops = CreateCpuForwardOps(DType::kBFloat16, std::make_shared<ThreadPool>(1));
    if (!ops.ok()) return ops;
    return std::make_unique<DisturbedOps>(*std::move(ops), fault);
  };
}

struct Expected {
  Fault fault;
  const char* op;
  int layer;
};

// A llama layer calls two norms, four linears and two adds.
const std::vector<Expected> kFaults = {
    {{ForwardOp::kEmbed, 0, 5}, "embed", -1},
    {{ForwardOp::kRmsNorm, 2, 7}, "rms_norm input", 1},
    {{ForwardOp::kRmsNorm, 3, 63}, "rms_norm post_attention", 1},
    {{ForwardOp::kRmsNorm, 4, 1}, "rms_norm final", -1},
    {{ForwardOp::kLinear, 0, 3}, "linear qkv", 0},
    {{ForwardOp::kLinear, 5, 0}, "linear o", 1},
    {{ForwardOp::kLinear, 6, 95}, "linear gate_up", 1},
    {{ForwardOp::kLinear, 3, 17}, "linear down", 0},
    {{ForwardOp::kRopeAndStore, 1, 9}, "rope_and_store", 1},
    {{ForwardOp::kAttention, 1, 11}, "attention", 1},
    {{ForwardOp::kSiluMul, 1, 95}, "silu_mul", 1},
    {{ForwardOp::kAdd, 2, 30}, "add attention", 1},
    {{ForwardOp::kAdd, 3, 31}, "add mlp", 1},
};

}  // namespace

TEST_CASE("decode, prefill and the trainer's forward of tiny models agree in every bit",
          "[parity]") {
  for (const std::string type : {"llama", "qwen2", "qwen3"}) {
    for (const bool tied : {true, false}) {
      INFO(type << (tied ? " tied" : " untied"));
      const TempDir dir;
      const ParityReport report =
          Report(TinyOptions(dir, {.model_type = type, .tie_word_embeddings = tied}));
      INFO(ParityText(report));
      REQUIRE(report.ok());
      REQUIRE(report.comparisons.size() == 2);
      for (const SideComparison& pair : report.comparisons) REQUIRE(pair.identical >= 300);
      REQUIRE(report.sides.size() == 3);
    }
  }
}

TEST_CASE("a trainer kernel that is off by one unit in the last place fails parity by name",
          "[parity]") {
  const TempDir dir;
  ParityOptions options = TinyOptions(dir);
  for (const Expected& expected : kFaults) {
    options.trainer_ops = Disturbed(expected.fault);
    const ParityReport report = Report(options);
    INFO(expected.op << "\n" << ParityText(report));
    REQUIRE_FALSE(report.ok());
    REQUIRE(report.comparisons[0].identical < report.comparisons[0].compared);
    REQUIRE(report.comparisons[0].max_abs_difference > 0);
    REQUIRE(report.comparisons[1].identical == report.comparisons[1].compared);
    REQUIRE(report.divergence.has_value());
    REQUIRE(report.divergence->op == expected.op);
    REQUIRE(report.divergence->layer == expected.layer);
    REQUIRE(report.divergence->element == expected.fault.element);
    REQUIRE(report.divergence->first == "rollout decode");
    REQUIRE(report.divergence->second == "trainer forward");
    REQUIRE(report.divergence->first_value != report.divergence->second_value);
    REQUIRE(report.divergence->note.empty());
    REQUIRE(report.missing_ops.empty());
  }
}

TEST_CASE("a head that is off by one unit in the last place is named", "[parity]") {
  const TempDir dir;
  ParityOptions options = TinyOptions(dir);
  options.trainer_ops = Disturbed({ForwardOp::kTokenLogProbs, 0, 0});
  const ParityReport report = Report(options);
  INFO(ParityText(report));
  REQUIRE(report.comparisons[0].identical == 0);
  REQUIRE(report.divergence->op == "log-prob");
  REQUIRE(report.divergence->position == report.divergence->prompt_tokens - 1);
}

TEST_CASE("a NaN stays the largest difference, whatever follows it", "[parity]") {
  const TempDir dir;
  ParityOptions options = TinyOptions(dir);
  options.rollout_ops = []() -> absl::StatusOr<std::unique_ptr<ForwardOps>> {
    return std::make_unique<NanOps>(
        CreateCpuForwardOps(DType::kBFloat16, std::make_shared<ThreadPool>(1)).value());
  };
  const ParityReport report = Report(options);
  INFO(ParityText(report));
  const SideComparison& decode_and_prefill = report.comparisons[1];
  REQUIRE(decode_and_prefill.identical < decode_and_prefill.compared - 1);
  REQUIRE(std::isnan(decode_and_prefill.max_abs_difference));
}

TEST_CASE("a rollout whose kernels are off is found as well", "[parity]") {
  const TempDir dir;
  ParityOptions options = TinyOptions(dir);
  options.rollout_ops = Disturbed({ForwardOp::kLinear, 3, 2});
  const ParityReport report = Report(options);
  INFO(ParityText(report));
  REQUIRE(report.divergence->op == "linear down");
  REQUIRE(report.divergence->layer == 0);
  REQUIRE(report.divergence->position == 0);
  // Both rollout sides have the same fault.
  REQUIRE(report.comparisons[1].identical == report.comparisons[1].compared);
}

TEST_CASE("a side that did not run an op fails parity, equal or not", "[parity]") {
  const TempDir dir;
  ParityOptions options = TinyOptions(dir);
  options.trainer_ops = []() -> absl::StatusOr<std::unique_ptr<ForwardOps>> {
    return std::make_unique<SilentOps>(
        CreateCpuForwardOps(DType::kBFloat16, std::make_shared<ThreadPool>(1)).value(),
        ForwardOp::kAttention);
  };
  const ParityReport report = Report(options);
  REQUIRE(report.comparisons[0].identical == report.comparisons[0].compared);
  REQUIRE_FALSE(report.ok());
  REQUIRE(report.missing_ops.size() == 1);
  REQUIRE(report.missing_ops[0].starts_with("trainer forward: attention ran on 0 rows"));
  REQUIRE(nlohmann::json::parse(ParityJson(report)).at("ok") == false);
}

TEST_CASE("parity refuses what it cannot run", "[parity]") {
  const TempDir dir;
  ParityOptions options = TinyOptions(dir);
  options.temperature = 0;
  REQUIRE(absl::IsInvalidArgument(RunParity(options).status()));
  options = TinyOptions(dir);
  options.response_tokens = 5000;
  REQUIRE(absl::IsInvalidArgument(RunParity(options).status()));
  options = TinyOptions(dir);
  options.model_dir = dir.path() / "nothing";
  REQUIRE_FALSE(RunParity(options).ok());
}

}  // namespace tandem::testing
